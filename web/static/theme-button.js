// The button that goes round: as the system, light, dark.
const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const order = ["system", "light", "dark"];
const words = { system: "as the system", light: "light", dark: "dark" };
const listeners = new Set();

const choice = () => root.dataset.theme ?? "system";

/** The theme on screen: "light" or "dark". */
export const theme = () => root.dataset.theme ?? (dark.matches ? "dark" : "light");

/** Call `listener()` whenever the theme on screen may have changed. */
export const onTheme = (listener) => listeners.add(listener);

function choose(next) {
  if (next === "system") delete root.dataset.theme;
  else root.dataset.theme = next;
  try {
    if (next === "system") localStorage.removeItem("pacenote-theme");
    else localStorage.setItem("pacenote-theme", next);
  } catch { /* kept for this page only */ }
  show();
  for (const listener of listeners) listener();
}

function show() {
  const button = document.getElementById("theme");
  button.setAttribute("aria-label", `Theme: ${words[choice()]}`);
  button.title = button.getAttribute("aria-label");
}

export function startTheme() {
  document.getElementById("theme").addEventListener("click", () => {
    choose(order[(order.indexOf(choice()) + 1) % order.length]);
  });
  dark.addEventListener("change", () => { if (choice() === "system") for (const listener of listeners) listener(); });
  show();
}
