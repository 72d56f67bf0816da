// Where the snapshots of a run come from: routes of the app's server, or data inside the page.
//
//   description(signal, known) → what there is to play; null if it is still of the version `known`
//   block(epoch, version, signal) → the bytes of one epoch
import { at } from "./theme.js";

export function servedBy(base, id) {
  const get = async (path, kind, signal) => {
    const answer = await fetch(at(`${base}film/${encodeURIComponent(id)}${path}`), { signal });
    if (!answer.ok) throw new Error(answer.status === 404 ? "not found" : `the server returned status ${answer.status}`);
    return answer.status === 204 ? null : answer[kind]();
  };
  return {
    description: (signal, known) => get(known ? `?known=${encodeURIComponent(known)}` : "", "json", signal),
    block: (epoch, version, signal) => get(`/${epoch}?v=${encodeURIComponent(version)}`, "arrayBuffer", signal),
  };
}

export const bytes = (base64) => Uint8Array.from(atob(base64), (ch) => ch.charCodeAt(0));

// { description, blocks: { epoch: base64 } }
export function embeddedIn({ description, blocks }) {
  return {
    description: async () => description,
    block: async (epoch) => bytes(blocks[epoch]).buffer,
  };
}
