// Front page: staleness, sorting, filtering, keyboard, sparklines and the chart over the shapes.
"use strict";

// As model.py's STALE; told by the reader's clock, for a dead cron job rebuilds no page.
const STALE_SECONDS = 36 * 3600;

for (const banner of document.querySelectorAll(".banner-stale")) {
  const age = Date.now() / 1000 - Number(banner.dataset.started);
  const days = age / 86400;
  const words = days < 1 ? `${Math.round(age / 3600)} hours ago` : `${Math.round(days)} days ago`;
  banner.classList.toggle("hidden", age <= STALE_SECONDS);
  banner.closest("section").querySelector(".ago").textContent = `(${words})`;
}

const rows = [...document.querySelectorAll("table.today tbody tr")];
const filter = document.getElementById("filter");
const outstanding = document.getElementById("outstanding");

function applyFilter() {
  const words = filter.value.toLowerCase().replaceAll("x", "×").split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows) {
    const { type, backend, word } = row.dataset;
    const shape = row.querySelector("a").textContent;
    const text = `${shape} ${type} ${backend} ${word}`.toLowerCase().replaceAll("x", "×");
    const wanted = !outstanding.checked || row.classList.contains("outstanding");
    row.hidden = !(wanted && words.every((part) => text.includes(part)));
    shown += !row.hidden;
  }
  document.getElementById("shown").textContent = `${shown} of ${rows.length} cells`;
}
filter.addEventListener("input", applyFilter);
outstanding.addEventListener("change", applyFilter);
applyFilter();

const NUMBERS = ["shape", "value", "change", "cublas"];

function sortBy(button) {
  const header = button.closest("th");
  const descending = header.getAttribute("aria-sort") === "ascending";
  const { key } = button.dataset;
  const body = button.closest("table").tBodies[0];
  const value = (row) => row.dataset[key];
  const compare = NUMBERS.includes(key)
    ? (a, b) => Number(value(a)) - Number(value(b))
    : (a, b) => value(a).localeCompare(value(b));
  const sorted = [...body.rows].sort((a, b) => {
    const blank = (value(a) === "") - (value(b) === ""); // what has no value comes last, always
    return blank || (descending ? -compare(a, b) : compare(a, b));
  });
  body.append(...sorted);
  for (const other of header.parentElement.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
}
for (const button of document.querySelectorAll("table.today thead button"))
  button.addEventListener("click", () => sortBy(button));

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input, select");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    filter.focus();
  } else if (event.key === "Escape" && event.target === filter) {
    filter.value = "";
    applyFilter();
    filter.blur();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    if (event.target.matches("select")) return;
    const links = [...document.querySelectorAll("table.today tbody tr:not([hidden]) a.open")];
    const at = links.indexOf(document.activeElement);
    if (at < 0 && event.target !== filter && event.target !== document.body) return;
    const next = links[event.key === "ArrowDown" ? at + 1 : Math.max(at - 1, 0)];
    if (!next) return;
    event.preventDefault();
    next.focus();
  }
});

function spark(place) {
  const row = place.closest("tr").dataset.row;
  const device = DATA[place.closest("table").dataset.device];
  const { band, ...series } = device.rows[row];
  const values = series[place.dataset.series];
  if (values.every((value) => value === null)) return null;
  const worth = place.dataset.series === "values";
  const bounds = worth && band ? band : [null, null];
  const known = [...values, ...bounds].filter((value) => value !== null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const margin = (high - low) * 0.08 || Math.abs(high) * 0.01 || 1;
  const x = values.map((_, index) => index);
  const last = values.map((value, index) => (index === values.length - 1 ? value : null));
  const ink = colour(worth ? "ink" : "muted");
  const line = { stroke: ink, width: 1.25, points: { show: false }, spanGaps: false };
  const edge = { stroke: "transparent", points: { show: false } };
  const options = {
    width: place.clientWidth || 120,
    height: 26,
    padding: [2, 3, 2, 3],
    axes: [{ show: false }, { show: false }],
    scales: { x: { time: false }, y: { range: [low - margin, high + margin] } },
    legend: { show: false },
    cursor: { show: false },
    series: [{}, edge, edge, line, { ...line, points: { show: true, size: 4, stroke: ink, fill: ink } }],
    bands: [{ series: [2, 1], fill: colour("band") }],
  };
  const flat = (value) => values.map(() => value);
  return new uPlot(options, [x, flat(bounds[0]), flat(bounds[1]), values, last], place);
}

// Sparklines are drawn when they come into sight.
const drawn = new Map();
const sight = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries)
    if (isIntersecting && !drawn.has(target)) drawn.set(target, spark(target));
});
const places = [...document.querySelectorAll(".spark")];
places.forEach((place) => sight.observe(place));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const [place, chart] of drawn) {
    chart?.destroy();
    drawn.set(place, spark(place));
  }
});

// One point for each backend and shape, with its noise as a bar; backends side by side.
function compareChart(place, problem) {
  const shapes = [...new Set(Object.values(problem.backends).flatMap(Object.keys))];
  const names = Object.keys(problem.backends);
  const x = [];
  const columns = names.map(() => ({ value: [], low: [], high: [] }));
  shapes.forEach((shape, at) =>
    names.forEach((name, number) => {
      x.push(at + ((number + 1) / (names.length + 1) - 0.5) * 0.6);
      names.forEach((_, other) => {
        const [value, low, high] = (other === number && problem.backends[name][shape]) || [];
        columns[other].value.push(value ?? null);
        columns[other].low.push(low ?? null);
        columns[other].high.push(high ?? null);
      });
    }),
  );
  const bars = (chart) => {
    const { ctx } = chart;
    ctx.save();
    names.forEach((_, number) => {
      const { value, low, high } = columns[number];
      ctx.strokeStyle = ctx.fillStyle = colour(`series-${number % 4}`);
      ctx.lineWidth = 2 * devicePixelRatio;
      value.forEach((v, index) => {
        if (v === null) return;
        const left = chart.valToPos(x[index], "x", true);
        if (low[index] !== null) {
          ctx.beginPath();
          ctx.moveTo(left, chart.valToPos(low[index], "y", true));
          ctx.lineTo(left, chart.valToPos(high[index], "y", true));
          ctx.stroke();
        }
        mark(ctx, number, left, chart.valToPos(v, "y", true), 4 * devicePixelRatio);
      });
    });
    ctx.restore();
  };
  const ratio = problem.metric === "ratio_to_cublas";
  const narrow = place.clientWidth < 120 * shapes.length;
  const name = (at) => (narrow ? shapes[at].replaceAll("×", "\n") : shapes[at]);
  const [low, high] = extent(columns.flatMap(({ value, low, high }) => [...value, ...low, ...high]));
  const margin = (high - low) * 0.08 || Math.abs(high) * 0.05 || 1;
  const options = {
    width: place.clientWidth,
    height: 300,
    legend: { show: false },
    cursor: { show: false },
    scales: {
      x: { time: false, range: [-0.6, shapes.length - 0.4] },
      y: { range: [low - margin, high + margin] },
    },
    axes: axes(
      {
        splits: () => shapes.map((_, at) => at),
        values: (_, splits) => splits.map(name),
        size: narrow ? 52 : 30,
        grid: { show: false },
      },
      { values: (_, splits) => splits.map((value) => figure(value, ratio).replace(/0$/, "")) },
    ),
    series: [{}, ...names.map(() => ({ paths: () => null, points: { show: false } }))],
    hooks: { draw: [bars] },
  };
  place.replaceChildren(legend(names));
  return new uPlot(options, [x, ...columns.map(({ value }) => value)], place);
}

function extent(values) {
  const known = values.filter((value) => value !== null);
  return [Math.min(...known), Math.max(...known)];
}

// Backends differ by form as well as by colour.
function mark(ctx, number, x, y, r) {
  ctx.beginPath();
  if (number % 4 === 0) ctx.arc(x, y, r, 0, 7);
  else if (number % 4 === 1) ctx.rect(x - r, y - r, 2 * r, 2 * r);
  else {
    const up = number % 4 === 2 ? 1 : -1;
    ctx.moveTo(x, y - up * 1.3 * r);
    ctx.lineTo(x + 1.2 * r, y + up * r);
    ctx.lineTo(x - 1.2 * r, y + up * r);
  }
  ctx.fill();
}

function legend(names) {
  const list = element("ul", undefined, "legend");
  names.forEach((name, number) => {
    const item = element("li", name);
    item.prepend(element("span", "●■▲▼"[number % 4], `series-${number % 4}`));
    list.append(item);
  });
  return list;
}

for (const select of document.querySelectorAll("select.problem")) {
  const { problems } = DATA[select.dataset.device];
  problems.forEach(({ name }) => select.append(element("option", name)));
  const place = select.closest("figure").querySelector(".chart");
  const again = keepDrawn(() => [compareChart(place, problems[select.selectedIndex])]);
  select.addEventListener("change", again);
}
