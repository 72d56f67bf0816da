// The trajectory player: one time, one epoch and one probe drive every panel.
function startPlayer(film) {
  const { T, now } = film;
  const advance = [planeChart(film), ...(film.A ? [attentionChart(film), changeChart(film)] : []), ...(film.state ? [stateChart(film)] : [])];

  const said = document.createElement("p");
  said.className = "note";
  if (at("image")) at("image").append(document.createElement("canvas"), said);

  const buttons = film.probes.map((probe) => {
    const button = document.createElement("button");
    button.type = "button";
    button.style.setProperty("--class", film.colour(probe));
    if (film.image) {
      const small = document.createElement("canvas");
      film.paint(small, probe);
      button.append(small);
    }
    button.append(film.title(probe));
    button.addEventListener("click", () => { now.probe = probe; show(); });
    at("probes").append(button);
    return button;
  });

  // Where a time lies on the slider, which goes from frame to frame.
  function place(t) {
    const high = Math.max(film.t.findIndex((v) => v >= t), 0), low = Math.max(high - 1, 0);
    return low + (high > low ? (t - film.t[low]) / (film.t[high] - film.t[low] || 1) : 0);
  }

  function tell() {
    at("time-rug").setAttribute("d", film.jumps().map((t) => `M${(place(t) / (T - 1 || 1) * 1000).toFixed(1)},0V1`).join(""));
    at("time").value = now.frame;
    at("epoch").value = now.epoch;
    at("time-value").textContent = "t = " + film.t[now.frame].toFixed(2);
    at("epoch-value").textContent = film.epochs[now.epoch] === 0 ? "before training" : "after epoch " + film.epochs[now.epoch];
    buttons.forEach((button, probe) => button.setAttribute("aria-pressed", String(probe === now.probe)));
  }

  function showImage() {
    if (!at("image")) return;
    film.paint(at("image").querySelector("canvas"), now.probe);
    const opinion = film.opinion(now.probe);
    said.textContent = film.title(now.probe)
      + (opinion ? `; the model says ${className(opinion[0])} (${(100 * opinion[1]).toFixed(0)} %)` : "");
  }

  function show() {
    tell();
    for (const id of ["plane", "attention", "change", "state"]) if (CHARTS.has(id)) draw(id);
    showImage();
  }

  function goTo(frame) {
    now.frame = frame;
    tell();
    for (const step of advance) step();
  }

  let timer = null;
  function pause() {
    clearInterval(timer);
    timer = null;
    at("play").textContent = "▶ Play";
  }
  function play() {
    if (now.frame === T - 1) goTo(0);
    at("play").textContent = "❚❚ Pause";
    timer = setInterval(() => {
      goTo(Math.min(now.frame + 1, T - 1));
      if (now.frame === T - 1) pause();
    }, Math.max(80, 3000 / T));
  }

  at("play").addEventListener("click", () => timer === null ? play() : pause());
  at("time").addEventListener("input", () => { pause(); goTo(Number(at("time").value)); });
  at("epoch").addEventListener("input", () => { now.epoch = Number(at("epoch").value); show(); });
  for (const id of ["map-mode", "near"]) at(id).addEventListener("change", show);
  tell();
  showImage();
}

if (DATA.player) startPlayer(makeFilm(DATA.player));
