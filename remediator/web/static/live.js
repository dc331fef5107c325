// Live updates: on an event of the audit log, the page is fetched again and the parts marked data-live are updated in place.
import { countAges } from "./ages.js";
import { morph } from "./morph.js";

const PAUSE_MS = 3000; // minimum time between two fetches
const TIMES_AS_LONG = 20; // and this many times the duration of the last fetch, to limit the load on the controller
const SOON_MS = 1500;
const GATHER_MS = 300; // events come in groups
const ANYWAY_MS = 20000; // refresh interval without events: some changes cause none, such as a node that goes silent
const STALE_MS = 45000;
const FAILED_MS = 5000;

let lastGood = Date.now();
let earliest = 0; // time of the next fetch that an event may cause
let following = false;
let failed = false;
let busy = false;
let timer = 0;
let due = Infinity;
let awaits = 8; // remaining fast refreshes for data that arrives late

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

// Only a visible page keeps a stream open, because all tabs share the browser's few connections to one server.
let source = null;

function follow(path) {
  if (source !== null || document.hidden) return;
  source = new EventSource(path);
  source.addEventListener("open", () => {
    following = true;
    soon(); // for events before the stream opened
    mark();
  });
  source.addEventListener("message", soon);
  source.addEventListener("error", () => {
    following = false;
    soon(); // shows whether the controller answers at all
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
  if (document.querySelector("[data-soon]") !== null) plan(Date.now() + SOON_MS); // the page waits for data that arrives late
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
