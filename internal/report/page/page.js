// Reads the curves of a chart out at the pointer, or at a cursor that the arrow keys move. Without it the page is whole.
"use strict";
for (const plot of document.querySelectorAll(".plot.live")) {
  const area = plot.querySelector(".area"), set = area.dataset;
  const names = [...plot.closest("figure").querySelectorAll(".legend li")].map((li) => li.textContent);
  const curves = [...area.querySelectorAll("path[data-run]")].map((path) => read(path.getAttribute("d")));
  const cursor = area.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "line"));
  const out = plot.parentNode.insertAdjacentElement("beforebegin", document.createElement("p"));
  const hint = "Point at the chart, or use the arrow keys on it, to read values.";
  let at = 0.5;

  cursor.setAttribute("class", "cursor");
  cursor.setAttribute("y2", "100%");
  hide();
  plot.tabIndex = 0;
  plot.setAttribute("role", "slider");
  plot.setAttribute("aria-label", area.getAttribute("aria-label"));
  plot.setAttribute("aria-valuemin", "0");
  plot.setAttribute("aria-valuemax", "100");
  plot.setAttribute("aria-valuenow", "50");

  plot.addEventListener("pointermove", (e) => {
    const box = area.getBoundingClientRect();
    show((e.clientX - box.left) / box.width);
  });
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("focus", () => show(at));
  plot.addEventListener("keydown", (e) => {
    const move = { ArrowLeft: -0.01, ArrowRight: 0.01, PageDown: -0.1, PageUp: 0.1, Home: -1, End: 1 }[e.key];
    if (move) {
      e.preventDefault();
      show(at + move);
    }
  });

  function hide() {
    cursor.style.display = "none";
    out.className = "readout idle";
    out.textContent = hint;
  }

  function show(x) {
    at = Math.min(Math.max(x, 0), 1);
    cursor.style.display = "";
    out.className = "readout";
    cursor.setAttribute("x1", at * 100 + "%");
    cursor.setAttribute("x2", at * 100 + "%");
    const values = curves.map((curve, i) => names[i] + " " + amount(value(curve, at * 1000)));
    out.textContent = time() + ": " + values.join(", ");
    plot.setAttribute("aria-valuenow", Math.round(at * 100));
    plot.setAttribute("aria-valuetext", out.textContent);
  }

  function time() {
    const x0 = +set.x0, x1 = +set.x1;
    return duration(set.x === "logtime" ? x0 * Math.pow(x1 / x0, at) : x0 + (x1 - x0) * at);
  }

  function amount(y) {
    const v = (1 - y / 1000) * set.y1;
    return set.y === "percent" ? (v * 100).toFixed(1) + " %" : Math.round(v).toLocaleString("en");
  }
}

function read(d) {
  let x = 0, y = 0;
  return [...d.matchAll(/([MHV])([\d.]+)(?: ([\d.]+))?/g)].map(([, verb, a, b]) => {
    if (verb === "V") y = +a; else x = +a;
    if (verb === "M") y = +b;
    return [x, y];
  });
}

function value(curve, x) {
  let y = 1000;
  for (const p of curve) {
    if (p[0] > x) break;
    y = p[1];
  }
  return y;
}

function duration(s) {
  if (s < 1) return Math.round(s * 1000) + " ms";
  if (s < 60) return Math.round(s) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + Math.floor(s % 60) + " s";
  if (s < 360000) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
  return (s / 86400).toFixed(1) + " d";
}
