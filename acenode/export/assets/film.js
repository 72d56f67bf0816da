// What the player shows: the snapshots, where it stands (frame, epoch, probe), and how to look things up.
function makeFilm(P) {
  const T = P.t.length, N = P.probes, A = P.attention;
  const bytes = (text) => Uint8Array.from(atob(text), (ch) => ch.charCodeAt(0));
  const maps = A ? bytes(A.maps) : null, pixels = P.image ? bytes(P.image.pixels) : null;
  const levels = P.state ? bytes(P.state.levels) : null;
  const now = { frame: 0, epoch: P.epochs.length - 1, probe: 0 };
  const probes = [...Array(N).keys()];
  const place = (frame, probe) => (now.epoch * T + frame) * N + probe;
  const name = (probe) => P.names ? P.names[probe] : `probe ${probe + 1}`;
  const label = (probe) => P.labels ? P.labels[probe] : probe;

  // The largest difference between any weight and the one it began as: the scale of the map of changes.
  function swing() {
    const block = N * A.shape[0] * A.shape[1];
    let most = 1;
    for (let i = 0; i < maps.length; i++) {
      const begun = Math.floor(i / (T * block)) * T * block + i % block;
      most = Math.max(most, Math.abs(maps[i] - maps[begun]));
    }
    return most * (A.high - A.low) / 255;
  }

  return {
    ...P, T, N, A, now, probes, place, label,
    swing: A ? swing() : 1,
    title: (probe) => P.labels ? `class ${className(P.labels[probe])}` : name(probe),
    whole: (probe) => P.labels ? `class ${className(P.labels[probe])}, ${name(probe)}` : name(probe),
    jumps: () => P.jumps ? P.jumps[now.probe] : [],  // of the chosen probe
    colour: (probe) => classColour(label(probe)),
    ownEpoch: (values) => values.slice(now.epoch * T * N, (now.epoch + 1) * T * N),
    opinion: (probe) => P.opinions ? P.opinions[now.epoch][probe] : null,

    // h(t) in the plane: one probe up to a frame, or all probes at a frame.
    path(probe, last) {
      const own = [...Array(last + 1).keys()].map((frame) => place(frame, probe));
      return { x: own.map((i) => P.pca.x[i]), y: own.map((i) => P.pca.y[i]) };
    },
    positions: (frame) => ({
      x: probes.map((probe) => P.pca.x[place(frame, probe)]),
      y: probes.map((probe) => P.pca.y[place(frame, probe)]),
    }),

    // The attention weights of the chosen probe.
    weights(frame) {
      const [rows, columns] = A.shape, start = place(frame, now.probe) * rows * columns;
      const level = (i, j) => A.low + (A.high - A.low) / 255 * maps[start + i * columns + j];
      return Array.from({ length: rows }, (_, i) => Array.from({ length: columns }, (_, j) => level(i, j)));
    },

    // h(t) of the chosen probe: a row a coordinate, a column a frame.
    coordinates() {
      const { size, most } = P.state, value = (i, frame) => (levels[place(frame, now.probe) * size + i] / 127 - 1) * most;
      return Array.from({ length: size }, (_, i) => Array.from({ length: T }, (_, frame) => value(i, frame)));
    },

    paint(canvas, probe) {
      const [channels, height, width] = P.image.shape, start = probe * channels * height * width;
      canvas.width = width;
      canvas.height = height;
      const context = canvas.getContext("2d"), image = context.createImageData(width, height);
      for (let i = 0; i < width * height; i++) {
        for (let k = 0; k < 3; k++) image.data[4 * i + k] = pixels[start + i * channels + (channels === 3 ? k : 0)];
        image.data[4 * i + 3] = 255;
      }
      context.putImageData(image, 0, 0);
    },
  };
}
