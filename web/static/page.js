// Every page begins here.
import { drawFigures, startFigures } from "./figures.js";
import { listen } from "./live.js";
import { refreshParts } from "./parts.js";
import { onTheme, startTheme } from "./theme-button.js";
import { startTimes } from "./times.js";

startTheme();
startTimes();

const draws = document.querySelector("[data-figures]") !== null;
if (draws) {
  startFigures();
  drawFigures().catch(() => {});
  onTheme(() => drawFigures().catch(() => {}));
}

const run = document.body.dataset.live;
if (run && run !== "none") {
  listen(run, () => Promise.all([refreshParts(), draws ? drawFigures() : null]));
}
