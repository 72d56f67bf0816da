// The trajectory player: one time, one epoch and one probe drive every panel.
if (DATA.player) (() => {
  const P = DATA.player, T = P.t.length, N = P.probes, A = P.attention;
  const bytes = (text) => Uint8Array.from(atob(text), (ch) => ch.charCodeAt(0));
  const maps = A ? bytes(A.maps) : null, pixels = P.image ? bytes(P.image.pixels) : null;
  const now = { frame: 0, epoch: P.epochs.length - 1, probe: 0 };
  const label = (p) => P.labels ? P.labels[p] : p;
  const title = (p) => P.labels ? `class ${className(P.labels[p])}` : `probe ${p + 1}`;
  const place = (frame, probe) => (now.epoch * T + frame) * N + probe;
  const probes = [...Array(N).keys()];

  // Ranges that hold for every frame, so that what moves is the state and not the axes.
  const range = (values, pad = 0.06) => {
    const low = values.reduce((a, b) => Math.min(a, b), Infinity), high = values.reduce((a, b) => Math.max(a, b), -Infinity);
    const room = (high - low || 1) * pad;
    return [low - room, high + room];
  };
  const ownEpoch = (values) => values.slice(now.epoch * T * N, (now.epoch + 1) * T * N);
  const farthest = A ? A.change.reduce((a, b) => Math.max(a, b ?? 0), 0) * 1.08 || 1 : 1;

  function path(probe, last) {
    const x = [], y = [];
    for (let f = 0; f <= last; f++) { x.push(P.pca.x[place(f, probe)]); y.push(P.pca.y[place(f, probe)]); }
    return { x, y };
  }

  chart("plane", (c) => {
    const named = new Set(), near = at("near").checked;
    const across = range(near ? ownEpoch(P.pca.x) : P.pca.x), up = range(near ? ownEpoch(P.pca.y) : P.pca.y);
    const data = probes.flatMap((p) => {
      const colour = classColour(label(p)), chosen = p === now.probe, first = !named.has(label(p));
      named.add(label(p));
      const one = { type: "scatter", legendgroup: "g" + label(p), showlegend: false, hoverinfo: "skip" };
      return [
        { ...one, ...path(p, T - 1), mode: "lines", line: { color: colour, width: 1 }, opacity: 0.35 },
        { ...one, ...path(p, now.frame), mode: "lines", line: { color: colour, width: chosen ? 4 : 2 } },
        { ...one, x: [P.pca.x[place(0, p)]], y: [P.pca.y[place(0, p)]], mode: "markers", marker: { size: 6, color: c.panel, line: { color: colour, width: 1.5 } } },
        { ...one, x: [P.pca.x[place(now.frame, p)]], y: [P.pca.y[place(now.frame, p)]], mode: "markers", name: brief(title(p), 24), showlegend: first,
          marker: { size: chosen ? 15 : 10, color: colour, line: { color: chosen ? c.ink : c.panel, width: chosen ? 2 : 1 } },
          customdata: [`${plain(title(p))}, probe ${p + 1}`], hoverinfo: "text", hovertemplate: "%{customdata}<extra></extra>" }];
    });
    const share = (i) => `principal component ${i + 1} (${(100 * P.pca.shares[i]).toFixed(0)} % of the variance)`;
    return { data, layout: layout(c, axis(c, share(0), { range: across, zeroline: false }), axis(c, share(1), { range: up, zeroline: false }),
      { uirevision: near ? now.epoch : "all", legend: { orientation: "h", x: 0, y: 1.01, yanchor: "bottom", font: { size: 12 }, itemsizing: "constant" } }) };
  });

  function cells(frame) {
    const [rows, columns] = A.shape, start = place(frame, now.probe) * rows * columns, scale = (A.high - A.low) / 255;
    return Array.from({ length: rows }, (_, i) => Array.from({ length: columns }, (_, j) => A.low + scale * maps[start + i * columns + j]));
  }
  // The largest difference between any weight and the one it began as: the scale of the map of changes.
  const swing = A ? (() => {
    const size = A.shape[0] * A.shape[1], block = N * size;
    let most = 0;
    for (let i = 0; i < maps.length; i++) {
      const begun = Math.floor(i / (T * block)) * T * block + i % block;
      most = Math.max(most, Math.abs(maps[i] - maps[begun]));
    }
    return Math.max(most, 1) * (A.high - A.low) / 255;
  })() : 1;

  chart("attention", (c) => {
    const changed = at("map-mode").value === "change", shown = cells(now.frame), start = cells(0);
    const z = changed ? shown.map((row, i) => row.map((v, j) => v - start[i][j])) : shown;
    const colour = changed ? { colorscale: [[0, "#2b62d9"], [0.5, c.panel], [1, "#d9662b"]], zmin: -swing, zmax: swing } : { colorscale: "Viridis", zmin: A.low, zmax: A.high };
    const [rows, columns] = A.shape, flat = rows === 1;
    return { data: [{ type: "heatmap", z, ...colour, xgap: columns < 12 ? 1 : 0, ygap: columns < 12 ? 1 : 0, hovertemplate: "%{z:.4f}<extra></extra>",
      colorbar: { title: { text: changed ? "change of the weight" : "weight", side: "right" }, thickness: 12, outlinewidth: 0 } }],
      layout: layout(c, axis(c, A.columns, { showgrid: false, zeroline: false, constrain: "domain", tickformat: "d" }),
        axis(c, A.rows, { autorange: "reversed", showgrid: false, zeroline: false, constrain: "domain", tickformat: "d", showticklabels: !flat, ...(flat ? {} : { scaleanchor: "x" }) })) };
  });

  chart("change", (c) => {
    const line = (p) => P.t.map((_, f) => A.change[place(f, p)]);
    const order = [...probes.filter((p) => p !== now.probe), now.probe];
    const data = order.map((p) => ({ type: "scatter", mode: "lines", x: P.t, y: line(p), showlegend: false, opacity: p === now.probe ? 1 : 0.35,
      line: { color: classColour(label(p)), width: p === now.probe ? 3 : 1.2 }, text: plain(title(p)), hovertemplate: "%{text}: %{y:.3g}<extra></extra>" }));
    data.push({ type: "scatter", mode: "markers", x: [P.t[now.frame]], y: [A.change[place(now.frame, now.probe)]], showlegend: false, hoverinfo: "skip",
      marker: { size: 12, color: classColour(label(now.probe)), line: { color: c.ink, width: 2 } } });
    return { data, layout: layout(c, axis(c, "t", { range: range(P.t, 0.02) }), axis(c, "‖a(t) − a(0)‖ / ‖a(0)‖", { range: [0, farthest] })) };
  });

  function paint(canvas, probe) {
    const [channels, height, width] = P.image.shape, start = probe * channels * height * width;
    canvas.width = width; canvas.height = height;
    const context = canvas.getContext("2d"), image = context.createImageData(width, height);
    for (let i = 0; i < width * height; i++) {
      for (let k = 0; k < 3; k++) image.data[4 * i + k] = pixels[start + i * channels + (channels === 3 ? k : 0)];
      image.data[4 * i + 3] = 255;
    }
    context.putImageData(image, 0, 0);
  }

  const said = document.createElement("p");
  if (at("image")) {
    at("image").append(document.createElement("canvas"), said);
    said.className = "note";
  }
  function showImage() {
    if (!at("image")) return;
    paint(at("image").querySelector("canvas"), now.probe);
    const opinion = P.opinions ? P.opinions[now.epoch][now.probe] : null;
    said.textContent = title(now.probe) + (opinion ? `; the model says ${className(opinion[0])} (${(100 * opinion[1]).toFixed(0)} %)` : "");
  }

  const buttons = probes.map((p) => {
    const button = document.createElement("button");
    button.type = "button";
    button.style.setProperty("--class", classColour(label(p)));
    if (pixels) { const small = document.createElement("canvas"); paint(small, p); button.append(small); }
    button.append(title(p));
    button.addEventListener("click", () => { now.probe = p; show(); });
    at("probes").append(button);
    return button;
  });

  function show() {
    at("time").value = now.frame; at("epoch").value = now.epoch;
    at("time-value").textContent = "t = " + P.t[now.frame].toFixed(2);
    at("epoch-value").textContent = P.epochs[now.epoch] === 0 ? "before training" : "after epoch " + P.epochs[now.epoch];
    buttons.forEach((b, p) => b.setAttribute("aria-pressed", String(p === now.probe)));
    for (const id of ["plane", "attention", "change"]) if (CHARTS.has(id)) draw(id);
    showImage();
  }

  let timer = null;
  function pause() { clearInterval(timer); timer = null; at("play").textContent = "▶ Play"; }
  function play() {
    if (now.frame === T - 1) now.frame = 0;
    at("play").textContent = "❚❚ Pause";
    timer = setInterval(() => {
      now.frame = Math.min(now.frame + 1, T - 1);
      show();
      if (now.frame === T - 1) pause();
    }, Math.max(80, 3000 / T));
  }
  at("play").addEventListener("click", () => timer === null ? play() : pause());
  at("time").addEventListener("input", () => { pause(); now.frame = Number(at("time").value); show(); });
  at("epoch").addEventListener("input", () => { now.epoch = Number(at("epoch").value); show(); });
  for (const id of ["map-mode", "near"]) at(id)?.addEventListener("change", show);
  show();
})();
