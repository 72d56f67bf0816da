// The player's position in the page's address, so that it survives a reload and can be shared as a link.

export function readAddress() {
  const query = new URLSearchParams(location.search);
  const found = (name, pattern) => pattern.test(query.get(name) ?? "") ? Number(query.get(name)) : undefined;
  return { t: found("t", /^-?\d+(\.\d+)?$/), epoch: found("epoch", /^\d{1,9}$/), probe: found("probe", /^\d{1,4}$/) };
}

export class Address {
  constructor() { this.written = []; }  // [name, value]

  write({ t, epoch, probe }) {
    this.written = [["t", String(Number(t.toFixed(3)))], ...(epoch === null ? [] : [["epoch", String(epoch)]]), ["probe", String(probe)]];
    this.put();
  }

  put() {
    const url = new URL(location.href);
    for (const [name, value] of this.written) url.searchParams.set(name, value);
    if (url.href === location.href) return;
    try {
      history.replaceState(history.state, "", url);
    } catch {  // some browsers forbid it for a page that was opened from disk
      this.written = [];
    }
  }

  // Write the position again if the page has removed it from its address.
  keep() {
    const query = new URLSearchParams(location.search);
    if (this.written.some(([name]) => !query.has(name))) this.put();
  }
}
