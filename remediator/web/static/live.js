// The page follows the audit log: when something happens, the parts marked data-live are fetched again and changed in place.
import { countAges } from "./ages.js";
import { morph } from "./morph.js";

const PAUSE_MS = 3000; // between two fetches, at least; and so many times as long as the last one took
const TIMES_AS_LONG = 20; // many may look, and the one that answers also decides
const SOON_MS = 1500;
const GATHER_MS = 300; // lines of the log come in groups
const ANYWAY_MS = 20000; // what has no line in the log changes too: a node that falls silent
const STALE_MS = 45000;
const FAILED_MS = 5000;

let lastGood = Date.now();
let earliest = 0; // of the next fetch that an event asks for
let following = false;
let failed = false;
let busy = false;
let timer = 0;
let due = Infinity;
let awaits = 8; // so often what comes later is looked for soon

function mark() {
  const live = document.getElementById("live");
  if (live === null) return;
  const state = failed || Date.now() - lastGood > STALE_MS ? "stale" : following ? "live" : "slow";
  const time = new Date(lastGood).toISOString().slice(11, 19);
  const words = { live: "live", slow: `every ${ANYWAY_MS / 1000} s`, stale: `stale since ${time}Z` }[state];
  live.hidden = false;
  live.dataset.state = state;
  document.body.dataset.state = state;
  const text = live.querySelector("[data-words]");
  if (text.textContent !== words) text.textContent = words;
}

function plan(at) {
  if (due <= at) return;
  clearTimeout(timer);
  due = at;
  timer = setTimeout(refresh, Math.max(0, at - Date.now()));
}

function soon() {
  plan(Math.max(Date.now() + GATHER_MS, earliest));
}

export async function refresh() {
  clearTimeout(timer);
  due = Infinity;
  if (busy || document.hidden) return;
  busy = true;
  const begun = Date.now();
  try {
    const answer = await fetch(location.href, { credentials: "same-origin", cache: "no-store", headers: { accept: "text/html" } });
    if (answer.redirected && new URL(answer.url).pathname === "/login") {
      location.reload();
      return;
    }
    if (!answer.ok) throw new Error(String(answer.status));
    show(new DOMParser().parseFromString(await answer.text(), "text/html"));
    lastGood = Date.now();
    failed = false;
  } catch {
    failed = true;
  } finally {
    busy = false;
  }
  earliest = Date.now() + Math.max(PAUSE_MS, (Date.now() - begun) * TIMES_AS_LONG);
  mark();
  const awaited = document.querySelector("[data-soon]") !== null && (awaits -= 1) > 0;
  plan(failed ? earliest + FAILED_MS : awaited ? Date.now() + SOON_MS : Date.now() + ANYWAY_MS);
}

function show(fresh) {
  for (const part of document.querySelectorAll("[data-live][id]")) {
    const newer = fresh.getElementById(part.id);
    if (newer !== null) morph(part, document.adoptNode(newer));
  }
  const words = document.querySelector("[data-announce]")?.dataset.announce ?? "";
  const announce = document.getElementById("announce");
  if (announce !== null && announce.dataset.last !== undefined && announce.dataset.last !== words) announce.textContent = words;
  if (announce !== null) announce.dataset.last = words;
  countAges();
  document.dispatchEvent(new CustomEvent("refreshed"));
}

// Only a page that is seen keeps a stream open: a browser has few connections to one server, and all its tabs share them.
let source = null;

function follow(path) {
  if (source !== null || document.hidden) return;
  source = new EventSource(path);
  source.addEventListener("open", () => {
    following = true;
    soon(); // what happened while nobody listened
    mark();
  });
  source.addEventListener("message", soon);
  source.addEventListener("error", () => {
    following = false;
    soon(); // says whether anybody is there at all
    mark();
    if (source?.readyState === EventSource.CLOSED) {
      source = null;
      setTimeout(() => follow(path), ANYWAY_MS);
    }
  });
}

function unfollow() {
  source?.close();
  source = null;
  following = false;
}

export function startLive() {
  const path = document.body.dataset.liveFrom;
  if (!path) return;
  const announce = document.getElementById("announce");
  if (announce !== null) announce.dataset.last = document.querySelector("[data-announce]")?.dataset.announce ?? "";
  follow(path);
  plan(Date.now() + ANYWAY_MS);
  setInterval(mark, 1000);
  if (document.querySelector("[data-soon]") !== null) plan(Date.now() + SOON_MS); // something was asked for that comes later
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) unfollow();
    else {
      follow(path);
      soon();
    }
  });
  addEventListener("pagehide", unfollow);
  addEventListener("pageshow", (event) => {
    if (event.persisted) location.reload();
  });
}
