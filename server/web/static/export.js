// Figures as PNG: the SVG that the server makes, painted twice as large as it is shown.

const SCALE = 2;

export function start() {
  for (const button of document.querySelectorAll("button[data-png]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        await save(button.parentElement.querySelector("a[data-export]").href, `${button.dataset.png}.png`);
      } catch (error) {
        button.textContent = "No PNG";
        button.title = error.message;
      } finally {
        button.disabled = false;
      }
    });
  }
}

async function save(url, name) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`the server answered ${response.status}`);
  const text = await response.text();
  const [width, height] = text.match(/viewBox="0 0 (\d+) (\d+)"/).slice(1).map(Number);
  const image = new Image(width * SCALE, height * SCALE);
  // Without a size of its own an image of a browser's choosing is painted.
  image.src = `data:image/svg+xml,${encodeURIComponent(text.replace("<svg", `<svg width="${width * SCALE}" height="${height * SCALE}"`))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width * SCALE, height * SCALE];
  canvas.getContext("2d").drawImage(image, 0, 0);
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
