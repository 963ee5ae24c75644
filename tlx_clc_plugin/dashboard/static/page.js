// What both kinds of pages share. Texts from results reach the page by textContent alone.
"use strict";

const DATA = JSON.parse(document.getElementById("data").textContent);

// Columns of compact.py as {key: array of n values}.
function expand(columns, n) {
  const arrays = {};
  for (const [key, column] of Object.entries(columns)) {
    if ("all" in column) arrays[key] = Array(n).fill(column.all);
    else if ("of" in column) arrays[key] = column.at.map((index) => column.of[index]);
    else arrays[key] = column.each;
  }
  return arrays;
}

// A colour of the style sheet, which knows whether it is dark.
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// As text.py's figure.
function figure(value, ratio) {
  if (value === null || value === undefined) return "n/a";
  if (ratio) return value.toFixed(3);
  if (Number.isInteger(value) || Math.abs(value) >= 1000)
    return value.toLocaleString("en", { maximumFractionDigits: Number.isInteger(value) ? 0 : 1 });
  return String(Number(value.toPrecision(4)));
}

function day(seconds) {
  return new Date(seconds * 1000).toISOString().slice(0, 10);
}

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// Draws now and again whenever the colours or the width change; draw returns uPlot objects.
function keepDrawn(draw) {
  let charts = draw();
  const again = () => {
    charts.forEach((chart) => chart.destroy());
    charts = draw();
  };
  let width = document.documentElement.clientWidth;
  addEventListener("resize", () => {
    if (document.documentElement.clientWidth === width) return;
    width = document.documentElement.clientWidth;
    requestAnimationFrame(again);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  return again;
}

function axes(x, y) {
  const common = {
    stroke: colour("muted"),
    font: "12px system-ui, sans-serif",
    grid: { stroke: colour("rule"), width: 1 },
    ticks: { show: false },
  };
  return [
    { ...common, ...x },
    { ...common, size: 60, ...y },
  ];
}
