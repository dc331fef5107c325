import "./forms.js";

// The heat map: all nodes on one canvas, one square per node, grouped by location.
const MARKS = { // drawn on small squares in addition to the colour
  suspect: "slash", draining: "bar", quarantined: "cross", resetting: "dot", replacing: "cross", testing: "dot",
  "operator-held": "bar", degraded: "slash", unhealthy: "cross", unknown: "dot",
};
const SIGNS = {
  healthy: "", suspect: "?", draining: "↓", quarantined: "✕", resetting: "↻", replacing: "⇄", testing: "◔", probation: "◑",
  "operator-held": "‖", retired: "–", degraded: "▵", unhealthy: "✕", unknown: "?",
};
const WELL = new Set(["healthy", "retired"]);
const LABEL = 15;
const LABELLED_MAX = 420; // with more groups, only the first group of each row has a label
const GUTTER = 58;

const box = document.getElementById("heat");
const canvas = box?.querySelector("canvas");
const tip = document.getElementById("heat-tip");
const words = document.getElementById("heat-now");
let picture = null;
let etag = "";
let cells = []; // {x, y, node, state, health, group}
let size = 8;
let at = -1;

function cellSize(count, width) {
  const wide = width > 700;
  const steps = wide ? [[80, 30], [350, 20], [800, 17], [1500, 14], [5000, 10], [Infinity, 8]] : [[40, 26], [200, 18], [900, 12], [3000, 8], [Infinity, 6]];
  return steps.find(([most]) => count <= most)[1];
}

function even(count, columns) { // prefers full rows, which are easier to read
  const near = [0, 1, -1, 2].map((more) => columns + more).find((wide) => wide > 0 && count % wide === 0);
  return Math.min(count, near ?? columns);
}

function lay(width) {
  const total = picture.groups.reduce((sum, group) => sum + group.nodes.length, 0);
  size = cellSize(total, width);
  const pitch = size + (size >= 10 ? 2 : 1);
  const labelled = picture.groups.length > 1 && picture.groups.length <= LABELLED_MAX;
  const gap = labelled ? 14 : picture.groups.length > 1 ? Math.max(3, pitch / 2) : 0;
  const left = !labelled && picture.groups.length > 1 && width > 700 ? GUTTER : 0;
  cells = [];
  const labels = [];
  let x = left, y = 0, tallest = 0;
  for (const group of picture.groups) {
    const count = group.nodes.length;
    const most = Math.max(1, Math.floor((width - left) / pitch));
    const columns = picture.groups.length === 1 ? most : Math.min(most, even(count, Math.max(labelled ? Math.ceil(64 / pitch) : 1, Math.ceil(Math.sqrt(count * (labelled ? 1.6 : 0.5))))));
    const rows = Math.ceil(count / columns);
    const wide = columns * pitch, high = rows * pitch + (labelled ? LABEL : 0);
    if (x > left && x + wide > width) {
      x = left;
      y += tallest + gap;
      tallest = 0;
    }
    if (labelled) labels.push({ x, y, text: group.name || "unknown", wide: wide + gap - 4 });
    else if (left && x === left) labels.push({ x: 0, y, text: group.name || "unknown", wide: left - 6 });
    for (let n = 0; n < count; n += 1) {
      cells.push({
        x: x + (n % columns) * pitch, y: y + (labelled ? LABEL : 0) + Math.floor(n / columns) * pitch, node: group.nodes[n], group: group.name,
        state: picture.states[parseInt(group.states[n], 36)], health: picture.healths[parseInt(group.healths[n], 36)],
      });
    }
    x += wide + gap;
    tallest = Math.max(tallest, high);
  }
  return { labels, height: Math.max(pitch, y + tallest) };
}

function isWell(cell) {
  return WELL.has(cell.state) && (cell.health === "healthy" || cell.state === "retired");
}

function draw() {
  if (picture === null) return;
  box.hidden = false;
  const width = box.clientWidth - 8;
  const { labels, height } = lay(width);
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round((width + 8) * scale);
  canvas.height = Math.round((height + 8) * scale);
  canvas.style.width = `${width + 8}px`;
  canvas.style.height = `${height + 8}px`;
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 4 * scale, 4 * scale);
  const colours = {};
  const key = box.dataset.colour;
  const mark = colour("--c-mark"), ink = colour("--ink");
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (const cell of cells) {
    const word = cell[key];
    colours[word] ??= colour(`--c-${word}`) || colour("--c-unknown");
    pen.fillStyle = colours[word];
    if (word === "retired") {
      pen.strokeStyle = colours[word];
      pen.strokeRect(cell.x + 0.5, cell.y + 0.5, size - 1, size - 1);
    } else if (size >= 14) {
      pen.beginPath();
      pen.roundRect(cell.x, cell.y, size, size, 3);
      pen.fill();
    } else pen.fillRect(cell.x, cell.y, size, size);
    if (size >= 14 && SIGNS[word]) {
      pen.fillStyle = mark;
      pen.font = `700 ${Math.round(size * 0.62)}px system-ui, sans-serif`;
      pen.fillText(SIGNS[word], cell.x + size / 2, cell.y + size / 2 + 0.5);
    } else if (size < 14 && MARKS[word]) markCell(pen, cell, MARKS[word], mark);
    if (!isWell(cell) && word === "healthy") { // the value that is not shown as colour is not healthy
      pen.strokeStyle = ink;
      pen.strokeRect(cell.x + 0.5, cell.y + 0.5, size - 1, size - 1);
    }
  }
  pen.textAlign = "left";
  pen.fillStyle = colour("--quiet");
  pen.font = "11px system-ui, sans-serif";
  for (const label of labels) pen.fillText(cut(pen, label.text, label.wide), label.x, label.y + 7);
  if (at >= 0 && at < cells.length) ring(pen, cells[at], ink);
}

function markCell(pen, cell, kind, colour) {
  const inset = size / 4;
  const [left, top, right, bottom] = [cell.x + inset, cell.y + inset, cell.x + size - inset, cell.y + size - inset];
  pen.strokeStyle = colour;
  pen.lineWidth = Math.max(1, size / 7);
  pen.beginPath();
  if (kind === "slash" || kind === "cross") {
    pen.moveTo(left, bottom);
    pen.lineTo(right, top);
  }
  if (kind === "cross") {
    pen.moveTo(left, top);
    pen.lineTo(right, bottom);
  }
  if (kind === "bar") {
    pen.moveTo((left + right) / 2, top);
    pen.lineTo((left + right) / 2, bottom);
  }
  if (kind === "dot") pen.arc((left + right) / 2, (top + bottom) / 2, size / 9, 0, 7);
  pen.stroke();
  pen.lineWidth = 1;
}

function cut(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let short = text;
  while (short.length > 1 && pen.measureText(`${short}…`).width > width) short = short.slice(0, -1);
  return `${short}…`;
}

function ring(pen, cell, colour) {
  pen.strokeStyle = colour;
  pen.lineWidth = 2;
  pen.strokeRect(cell.x - 1.5, cell.y - 1.5, size + 3, size + 3);
  pen.lineWidth = 1;
}

function describeCell(cell) {
  const place = cell.group && picture.by !== "none" ? `, ${picture.by} ${cell.group}` : "";
  return `${cell.node}: ${cell.state}, ${cell.health}${place}`;
}

function select(index, { speak = false } = {}) {
  if (index === at) return;
  at = index;
  draw();
  const cell = cells[at];
  tip.hidden = cell === undefined;
  if (cell === undefined) return;
  tip.textContent = describeCell(cell);
  const left = Math.min(cell.x, box.clientWidth - tip.offsetWidth - 4);
  tip.style.setProperty("left", `${Math.max(0, left)}px`);
  tip.style.setProperty("top", `${cell.y + size + 9}px`);
  if (speak) words.textContent = describeCell(cell);
}

function under(event) {
  const frame = canvas.getBoundingClientRect();
  const x = event.clientX - frame.left - 4, y = event.clientY - frame.top - 4;
  return cells.findIndex((cell) => x >= cell.x - 1 && x < cell.x + size + 1 && y >= cell.y - 1 && y < cell.y + size + 1);
}

function open(index) {
  if (index >= 0 && index < cells.length) location.assign(`/nodes/${encodeURIComponent(cells[index].node)}`);
}

function above(step) {
  const here = cells[at];
  let best = at, distance = Infinity;
  cells.forEach((cell, index) => {
    const down = (cell.y - here.y) * step;
    if (down <= 0) return;
    const far = down * 3 + Math.abs(cell.x - here.x);
    if (far < distance) [best, distance] = [index, far];
  });
  return best;
}

function broken(step) {
  for (let n = 1; n <= cells.length; n += 1) {
    const index = (Math.max(at, step > 0 ? -1 : 0) + step * n + cells.length * 2) % cells.length;
    if (!isWell(cells[index])) return index;
  }
  return at;
}

const KEYS = {
  ArrowRight: () => Math.min(cells.length - 1, at + 1),
  ArrowLeft: () => Math.max(0, at - 1),
  ArrowDown: () => above(1),
  ArrowUp: () => above(-1),
  Home: () => 0,
  End: () => cells.length - 1,
  n: () => broken(1),
  p: () => broken(-1),
};

function pressed(event) {
  if (cells.length === 0 || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Enter") return open(at);
  const move = KEYS[event.key];
  if (move === undefined) return;
  event.preventDefault();
  if (at < 0 && event.key.startsWith("Arrow")) return select(0, { speak: true });
  select(move(), { speak: true });
}

async function fetchPicture() {
  const answer = await fetch(box.dataset.src, { credentials: "same-origin", headers: etag ? { "if-none-match": etag } : {} });
  if (answer.status === 304 || !answer.ok) return;
  const chosen = cells[at]?.node;
  etag = answer.headers.get("etag") ?? "";
  picture = await answer.json();
  draw();
  if (chosen !== undefined) {
    at = cells.findIndex((cell) => cell.node === chosen);
    draw();
  }
  box.dataset.drawn = String(cells.length);
}

if (box !== null) {
  canvas.addEventListener("mousemove", (event) => select(under(event)));
  canvas.addEventListener("mouseleave", () => select(-1));
  canvas.addEventListener("click", (event) => open(under(event)));
  canvas.addEventListener("keydown", pressed);
  canvas.addEventListener("blur", () => select(-1));
  document.addEventListener("theme", draw);
  document.addEventListener("refreshed", () => fetchPicture().catch(() => {}));
  new ResizeObserver(draw).observe(box);
  fetchPicture().catch(() => {});
}
