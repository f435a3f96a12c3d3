// Charts are as wide as the screen; paper is narrower, and what stands beyond its edge would be lost.
const PAPER = 660;  // px: an A4 page between its margins, less a panel's own
const narrowed = new Set();

function narrow() {
  for (const plot of document.querySelectorAll(".js-plotly-plot")) {
    if (plot.clientWidth <= PAPER) continue;
    narrowed.add(plot);
    window.Plotly.relayout(plot, { width: PAPER });
  }
}

function widen() {
  for (const plot of narrowed) window.Plotly.relayout(plot, { width: undefined, autosize: true });
  narrowed.clear();
}

export function startPrint() {
  addEventListener("beforeprint", narrow);
  addEventListener("afterprint", widen);
}
