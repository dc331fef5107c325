// What every page runs: live updates, keys, dark and light, and the counting of "3 min ago".
import { startAges } from "./ages.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startTheme } from "./theme.js";

// On a phone the list of pages is longer than the window: show where one is.
document.querySelector(".top nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
startTheme();
startKeys();
startAges();
startLive();
