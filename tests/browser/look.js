// Put into a copy of a page by tests/report_page.rs: tells what was drawn, what a chart says to a pointer, and what is on
// paper.
addEventListener("load", async () => {
  // Neither transparent nor grey: a line, a band or a marker, and not the grid.
  const coloured = (canvas) => {
    const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let n = 0;
    for (let i = 0; i < data.length; i += 4) {
      const [r, g, b] = [data[i], data[i + 1], data[i + 2]];
      n += data[i + 3] > 100 && Math.max(r, g, b) - Math.min(r, g, b) > 60;
    }
    return n;
  };
  const drawn = () => [...document.querySelectorAll(".u-wrap canvas")];
  const told = { pixels: drawn().map(coloured) };

  const over = document.querySelector("#rate-charts .u-over");
  const at = over.getBoundingClientRect();
  const where = { clientX: at.left + at.width * 0.9, clientY: at.top + at.height / 2, bubbles: true };
  for (const kind of ["mouseenter", "mousemove"]) over.dispatchEvent(new MouseEvent(kind, where));
  told.hover = over.querySelector(".hover").textContent;

  const root = document.documentElement;
  if (root.dataset.theme !== "dark") document.getElementById("theme").click();
  dispatchEvent(new Event("beforeprint"));
  // Charts are drawn once the scripts that made them have ended.
  await new Promise((done) => setTimeout(done));
  told.paper = {
    theme: root.dataset.theme,
    charts: drawn().map((canvas) => ({ width: canvas.width / devicePixelRatio, coloured: coloured(canvas) })),
  };
  dispatchEvent(new Event("afterprint"));
  told.after = root.dataset.theme;

  const out = document.createElement("output");
  out.id = "told";
  out.textContent = JSON.stringify(told);
  document.body.appendChild(out);
});
