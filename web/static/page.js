// Every page begins here.
import { drawFigures, startFigures } from "./figures.js";
import { drawFragments } from "./fragments.js";
import { listen, renew } from "./live.js";
import { refreshParts } from "./parts.js";
import { startPrint } from "./print.js";
import { onTheme, startTheme } from "./theme-button.js";
import { startTimes } from "./times.js";

const home = document.body.dataset.home;  // a form's answer is the page it came from: loading it again asks for that
if (home) history.replaceState(null, "", home);

startTheme();
startTimes();

const draws = document.querySelector("[data-figures]") !== null;
if (draws) {
  startFigures();
  startPrint();
  drawFigures().catch(() => {});
  onTheme(() => drawFigures().catch(() => {}));
}

drawFragments().catch(() => {});

const run = document.body.dataset.live;
if (run === "renew") renew();
else if (run && run !== "none") {
  listen(run, () => Promise.all([refreshParts(), drawFragments(), draws ? drawFigures() : null]));
}
