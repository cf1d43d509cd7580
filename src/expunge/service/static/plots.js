// SPDX-License-Identifier: Apache-2.0
//
// Draws the tables marked `data-plot` as lines, with uPlot. The table stays for those
// who read or print it: it folds away under the drawing.

// A table's first column is x, each other one a line; its head names them.
function readTable(table) {
  const names = Array.from(table.tHead.rows[0].cells, (cell) => cell.textContent.trim());
  const rows = Array.from(table.tBodies[0].rows, (row) =>
    Array.from(row.cells, (cell) => {
      const value = Number(cell.dataset.value ?? cell.textContent);
      return Number.isNaN(value) ? null : value; // a gap in the line
    }),
  );
  return { names, columns: names.map((_, i) => rows.map((row) => row[i])) };
}

// `kind` says what x is: days or counts.
function draw(place, { names, columns }, kind) {
  const resolve = (name) => {
    place.style.color = `var(${name})`;
    return getComputedStyle(place).color;
  };
  const lines = ["--blue", "--orange", "--green"].map(resolve);
  const [ink, grid] = ["--muted", "--line"].map(resolve);
  const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid } };
  const options = {
    width: place.clientWidth,
    height: 200,
    scales: { x: { time: kind === "days" } },
    axes: [axis, { ...axis, size: 56 }],
    series: names.map((label, i) =>
      i ? { label, stroke: lines[(i - 1) % 3], width: 2, points: { show: columns[0].length < 30 } } : { label },
    ),
    legend: { show: names.length > 2 },
    cursor: { drag: { x: false, y: false } },
  };
  place.replaceChildren();
  return new uPlot(options, columns, place);
}

function drawTable(table) {
  const data = readTable(table);
  if (data.columns[0].length < 2) return;
  const place = document.createElement("div");
  place.className = "plot";
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", table.caption.textContent.trim());
  const folded = document.createElement("details");
  folded.append(Object.assign(document.createElement("summary"), { textContent: "As a table" }));
  const title = Object.assign(document.createElement("p"), { textContent: table.caption.textContent });
  title.className = "note";
  title.setAttribute("aria-hidden", "true");
  table.before(title, place, folded);
  folded.append(table);
  const kind = table.dataset.plot;
  let plot = draw(place, data, kind);
  const again = () => {
    plot.destroy();
    plot = draw(place, data, kind);
  };
  document.addEventListener("theme", again);
  addEventListener("resize", again);
}

document.querySelectorAll("table[data-plot]").forEach(drawTable);
