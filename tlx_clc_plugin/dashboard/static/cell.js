// A cell's page: its history and cuBLAS's with events, the chosen night, the command to copy.
"use strict";

const nights = expand(NIGHTS, nightCount(NIGHTS));
const records = expand(DATA.records, DATA.night.length);
const us = records["figures.cublas_us"];
const started = DATA.night.map((night) => nights.started[night]);

function nightCount(columns) {
  return columns.started.each?.length ?? columns.started.at?.length ?? 1;
}

// Vertical lines of events, and a cross for each night without a value.
function marks(series) {
  return (chart) => {
    const { ctx, bbox } = chart;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    for (const { time, kind } of DATA.events) {
      const x = Math.round(chart.valToPos(time, "x", true));
      ctx.strokeStyle = colour(`mark-${kind}`);
      ctx.lineWidth = (kind === "regression" ? 2 : 1) * devicePixelRatio;
      ctx.setLineDash(kind === "regression" ? [] : [4 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.setLineDash([]);
    ctx.fillStyle = colour("worse");
    ctx.textAlign = "center";
    series.forEach((value, index) => {
      if (value === null)
        ctx.fillText("×", chart.valToPos(started[index], "x", true), bbox.top + bbox.height - 4);
    });
    ctx.restore();
    labels(chart);
  };
}

// Names of the events over the chart, each where there is room for it.
function labels(chart) {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textBaseline = "bottom";
  let free = -Infinity;
  for (const { time, kind, label } of DATA.events) {
    const x = chart.valToPos(time, "x", true);
    const width = ctx.measureText(label).width;
    if (x < bbox.left || x > bbox.left + bbox.width || x < free) continue;
    const left = Math.min(x, bbox.left + bbox.width - width);
    ctx.fillStyle = colour(`mark-${kind}`);
    ctx.fillText(label, left, bbox.top - 2 * devicePixelRatio);
    free = left + width + 6 * devicePixelRatio;
  }
  ctx.restore();
}

let chosen = started.length - 1;
let charts = [];

function choose(index) {
  chosen = Math.max(0, Math.min(started.length - 1, index));
  const night = DATA.night[chosen];
  const of = (key) => nights[key]?.[night];
  const panel = document.getElementById("night");
  const title = element("h3", `${day(started[chosen])} `);
  title.append(element("span", records.word[chosen], `word word-${records.word[chosen]}`));
  if (of("synthetic")) title.append(" synthetic");
  const commit = of("commit.url") ? element("a", of("commit.sha").slice(0, 12)) : element("span");
  if (of("commit.url")) commit.href = of("commit.url"); // night.py lets http and https pass alone
  else commit.textContent = of("commit.sha").slice(0, 12);
  const first = element("p", "commit ");
  first.append(commit, ` ${of("commit.subject")}`);
  const value = (key) => figure(records[key][chosen], DATA.ratio);
  const lines = [
    `${DATA.title} ${value("value")}, noise ${value("low")}–${value("high")}`,
    us && `cuBLAS ${figure(us[chosen])} µs`,
    records.config[chosen] && `config ${records.config[chosen]}`,
    records.why[chosen],
    of("gpu.driver") && `driver ${of("gpu.driver")}, ${of("gpu.power_limit_w")} W`,
    of("clock") && `SM clock ${of("clock")} MHz, throttled by ${of("throttled") || "nothing"}`,
    `fbtriton ${of("versions.fbtriton")}, torch ${of("versions.torch")}, runner ${of("runner.name")}`,
    of("file"),
  ];
  panel.replaceChildren(title, first, ...lines.filter(Boolean).map((line) => element("p", line)));
  document.getElementById("raw").textContent = JSON.stringify(raw(chosen), null, 2);
  for (const chart of charts) {
    chart.setCursor({ left: chart.valToPos(started[chosen], "x"), top: 10 }, false);
  }
}

// The record as it stands in the night's file.
function raw(index) {
  const record = {};
  for (const [key, values] of Object.entries(records)) {
    if (key === "word" || key === "why") continue;
    const [outer, inner] = key.split(".");
    if (inner === undefined) record[key] = values[index];
    else {
      record[outer] ??= {};
      if (values[index] !== null) record[outer][inner] = values[index];
    }
  }
  return record;
}

function chart(id, height, series, bands, data, ratio) {
  const place = document.getElementById(id);
  place.replaceChildren();
  const options = {
    width: place.clientWidth,
    height,
    padding: [18, 20, 0, 0],
    cursor: { sync: { key: "cell" }, drag: { x: true, y: false }, points: { size: 7 }, y: false },
    legend: { show: false },
    axes: axes({}, { values: (_, splits) => splits.map((value) => figure(value, ratio)) }),
    series: [{}, ...series],
    bands,
    hooks: {
      draw: [marks(data[0])],
      setCursor: [
        ({ cursor }) => {
          if (cursor.event && cursor.idx !== null && cursor.idx !== chosen) choose(cursor.idx);
        },
      ],
    },
  };
  return new uPlot(options, [started, ...data], place);
}

function draw() {
  const line = { points: { size: 5, fill: colour("paper") }, spanGaps: false };
  const edge = { stroke: "transparent", points: { show: false } };
  const bound = { ...edge, stroke: colour("band-edge"), dash: [2, 4] };
  const flat = (side) => started.map(() => DATA.band?.[side] ?? null);
  charts = [
    chart(
      "value",
      320,
      [
        { ...line, stroke: colour("ink"), width: 2 },
        edge,
        edge,
        bound,
        bound,
      ],
      [{ series: [3, 2], fill: colour("band") }],
      [records.value, records.low, records.high, flat(0), flat(1)],
      DATA.ratio,
    ),
  ];
  if (us) {
    const series = { ...line, stroke: colour("series-2"), width: 1.5 };
    charts.push(chart("cublas", 180, [series], [], [us], false));
  }
  return charts;
}

keepDrawn(draw);
choose(chosen);

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("pre")) return;
  if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
    event.preventDefault();
    choose(chosen + (event.key === "ArrowRight" ? 1 : -1));
  } else if (event.key === "Escape") document.getElementById("back").click();
});

document.getElementById("copy").addEventListener("click", async () => {
  const told = document.getElementById("copied");
  const command = document.getElementById("repro");
  try {
    await navigator.clipboard.writeText(command.textContent);
    told.textContent = "copied";
  } catch {
    getSelection().selectAllChildren(command);
    told.textContent = "selected: press Ctrl+C";
  }
});
