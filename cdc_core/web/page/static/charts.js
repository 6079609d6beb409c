// The charts of one changefeed. The same numbers, as of now, stand above them as text.
"use strict";
(() => {
  const place = document.querySelector("[data-points]");
  const LAG = 1, RATE = 2, HALF = 3, MOST = 4, NEARLY_ALL = 5, RETAINED = 6, COLUMNS = 7, LONGEST = 5000, GAP_S = 10;
  const CHARTS = {
    lag: { columns: [LAG], colors: ["--source"], unit: seconds },
    rate: { columns: [RATE], colors: ["--sink"], unit: count },
    latency: { columns: [HALF, MOST, NEARLY_ALL], colors: ["--sink", "--source", "--encode"], unit: seconds },
    retained: { columns: [RETAINED], colors: ["--encode"], unit: bytes },
  };
  const spans = document.getElementById("spans-of-charts");
  let points = Array.from({ length: COLUMNS }, () => []);
  let charts = [];

  function seconds(value) {
    if (value >= 3600) return `${+(value / 3600).toFixed(1)} h`;
    if (value >= 60) return `${+(value / 60).toFixed(1)} min`;
    return value >= 1 || value === 0 ? `${+value.toFixed(1)} s` : `${+(value * 1000).toFixed(0)} ms`;
  }

  function count(value) {
    return value >= 1e6 ? `${+(value / 1e6).toFixed(1)} M` : value >= 1e3 ? `${+(value / 1e3).toFixed(1)} k` : `${+value.toFixed(1)}`;
  }

  function bytes(value) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let unit = 0;
    for (; value >= 1000 && unit < units.length - 1; unit++) value /= 1000;
    return `${+value.toFixed(1)} ${units[unit]}`;
  }

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const dataOf = (chart) => [0, ...chart.columns].map((column) => points[column]);

  // The time that is chosen, up to the last point; less while there are no older ones.
  function range(_, first, last) {
    if (last === null) return [null, null];
    const from = Math.max(first, last - spans.querySelector(":checked").value);
    return [Math.min(from, last - 1), last];
  }

  function draw() {
    for (const { plot } of charts) plot.destroy();
    charts = Array.from(place.querySelectorAll("[data-chart]"), (element) => {
      const chart = CHARTS[element.dataset.chart];
      const axis = { stroke: color("--muted"), font: "11px system-ui", grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
      const options = {
        width: element.clientWidth - 8,
        height: 142,
        legend: { show: false },
        cursor: { sync: { key: "charts" }, drag: { x: false, y: false }, points: { size: 6 } },
        tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
        scales: { x: { range }, y: { range: (_, __, most) => [0, most > 0 ? most * 1.15 : 1] } },
        axes: [
          { ...axis, size: 28, space: 70, values: [[60, "{HH}:{mm}", null, null, null, null, null, null, 1], [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]] },
          { ...axis, size: 58, space: 34, values: (_, ticks) => ticks.map(chart.unit) },
        ],
        series: [{}, ...chart.colors.map((name) => ({ stroke: color(name), width: 1.5, spanGaps: false, points: { show: false }, fill: chart.colors.length === 1 ? `${color(name)}22` : undefined }))],
      };
      return { chart, element, plot: new uPlot(options, dataOf(chart), element) };
    });
  }

  function add(point) {
    const last = points[0][points[0].length - 1];
    if (last !== undefined && point[0] <= last) return;
    // Where nothing was measured, there is no line.
    const added = point[0] - last > GAP_S ? [point.map((_, column) => (column ? null : point[0] - GAP_S / 2)), point] : [point];
    points = points.map((values, column) => [...values, ...added.map((each) => each[column])].slice(-LONGEST));
    refresh();
  }

  function refresh() {
    for (const { chart, plot } of charts) plot.setData(dataOf(chart));
  }

  document.addEventListener("point", (event) => add(event.detail));
  window.addEventListener("resize", () => {
    for (const { element, plot } of charts) plot.setSize({ width: element.clientWidth - 8, height: 142 });
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  spans.addEventListener("change", draw);
  place.hidden = spans.hidden = false;

  // What is older comes from the server, by minutes where nobody looked.
  const load = () =>
    fetch(place.dataset.points)
      .then((answer) => (answer.ok ? answer.json() : []))
      .then((columns) => {
        if (columns.length === COLUMNS) points = columns;
      })
      .catch(() => {})
      .then(() => (charts.length ? refresh() : draw()));
  load();
  setInterval(() => { if (!document.hidden) load(); }, 60000);
})();
