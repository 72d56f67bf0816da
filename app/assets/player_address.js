// The place in the film as part of the page's address: it stays when the page is read again or sent to somebody.

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
    if (url.href !== location.href) history.replaceState(history.state, "", url);
  }

  // Somebody may have taken our place out of the address.
  keep() {
    const query = new URLSearchParams(location.search);
    if (this.written.some(([name]) => !query.has(name))) this.put();
  }
}
