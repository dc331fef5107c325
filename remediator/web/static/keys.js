// Keyboard shortcuts: "/" searches, "g" and a letter opens a page, "r" refreshes, "?" lists the shortcuts.
import { refresh } from "./live.js";

const PREFIX_MS = 1500;

function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("input, textarea, select"));
}

export function startKeys() {
  const dialog = document.getElementById("keys");
  const help = document.getElementById("help");
  if (help !== null) {
    help.hidden = false;
    help.addEventListener("click", () => dialog.showModal());
  }
  let goingUntil = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (isTyping(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (Date.now() < goingUntil) {
      goingUntil = 0;
      const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link !== null) {
        event.preventDefault();
        link.click();
      }
      return;
    }
    if (event.key === "g") goingUntil = Date.now() + PREFIX_MS;
    else if (event.key === "/") {
      event.preventDefault();
      document.getElementById("q")?.focus();
    } else if (event.key === "?") {
      event.preventDefault();
      if (!dialog.open) dialog.showModal();
    } else if (event.key === "r") refresh();
  });
}
