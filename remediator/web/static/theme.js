// The theme switch. The choice is a cookie, so that the server renders the page in the right colours.
const YEAR_S = 365 * 86400;

export function startTheme() {
  const button = document.getElementById("theme");
  if (button === null) return;
  button.hidden = false;
  button.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    document.cookie = `theme=${root.dataset.theme}; path=/; max-age=${YEAR_S}; samesite=strict`;
    document.dispatchEvent(new CustomEvent("theme"));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new CustomEvent("theme")));
}
