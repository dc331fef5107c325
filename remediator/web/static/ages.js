// Keeps ages such as "3 min ago" current between two refreshes of the page.
const EVERY_MS = 5000;

export function span(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  const [size, large, part, small] = seconds < 86400 ? [3600, "h", 60, "min"] : [86400, "d", 3600, "h"];
  return `${Math.floor(seconds / size)} ${large} ${Math.floor((seconds % size) / part)} ${small}`;
}

export function countAges(root = document) {
  const now = Date.now();
  for (const element of root.querySelectorAll("[data-ago]")) {
    const at = Date.parse(element.parentElement.dateTime);
    if (Number.isNaN(at)) continue;
    const seconds = (now - at) / 1000;
    const words = seconds >= 0 ? `${span(seconds)} ago` : `in ${span(-seconds)}`;
    if (element.textContent !== words) element.textContent = words;
  }
}

export function startAges() {
  countAges();
  setInterval(countAges, EVERY_MS);
}
