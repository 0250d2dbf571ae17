// Theme, paper, and the first drawing.

const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
root.dataset.theme = dark.matches ? "dark" : "light";
const redrawAll = () => charts.forEach(redraw);

document.getElementById("theme").addEventListener("click", () => {
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  redrawAll();
});
dark.addEventListener("change", () => {
  root.dataset.theme = dark.matches ? "dark" : "light";
  redrawAll();
});

// On paper it is light, and as wide as the paper.
let before = root.dataset.theme;
addEventListener("beforeprint", () => {
  before = root.dataset.theme;
  root.dataset.theme = "light";
  for (const made of charts) {
    printing = made.box.parentElement.id === "rate-charts" ? 330 : 690;
    redraw(made);
  }
  printing = 0;
});
addEventListener("afterprint", () => {
  root.dataset.theme = before;
  redrawAll();
});

let waiting = 0;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => charts.filter((made) => made.width !== widthOf(made.place)).forEach(redraw), 120);
});

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", () => {
    const source = document.getElementById(button.dataset.copy);
    const range = document.createRange();
    range.selectNodeContents(source);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    const said = document.execCommand("copy") ? "Copied" : "Selected";
    button.textContent = said;
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}

if (overRate.length > 0) {
  latencyCharts();
  goodputCharts();
} else {
  element("p", document.getElementById("rate-charts"), "No finite rate was tested: there is nothing to draw over it.", "note");
}
trialCharts();
distributionCharts();
// For whoever opens the page by a program: it has drawn.
root.dataset.drawn = String(charts.filter((made) => made.plot).length);
