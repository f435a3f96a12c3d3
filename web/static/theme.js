// Runs before the first paint: the theme a reader chose, else the system's.
(() => {
  let choice = null;
  try { choice = localStorage.getItem("pacenote-theme"); } catch { /* storage may be forbidden: follow the system */ }
  if (choice === "light" || choice === "dark") document.documentElement.dataset.theme = choice;
})();
