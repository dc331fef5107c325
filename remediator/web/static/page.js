// What every page runs: live updates, keys, dark and light, and the counting of "3 min ago".
import { startAges } from "./ages.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startTheme } from "./theme.js";

startTheme();
startKeys();
startAges();
startLive();
