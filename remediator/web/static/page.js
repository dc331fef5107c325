// Runs on every page: live updates, keyboard shortcuts, the theme switch and current ages.
import { startAges } from "./ages.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startTheme } from "./theme.js";

// On a phone the navigation is wider than the window: scroll to the current page.
document.querySelector(".top nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
startTheme();
startKeys();
startAges();
startLive();
