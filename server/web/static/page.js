// What every page needs: copying, programs that load when opened, forms that follow a choice.
// All of it only adds to pages that work without it.
import { announce, copyText } from "./util.js";
import { follow } from "./live.js";
import { swap } from "./swap.js";

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy);
  await loaded(source);
  const done = await copyText(source.textContent);
  const label = button.dataset.label ?? (button.dataset.label = button.textContent);
  button.textContent = done ? "Copied" : "Not copied";
  announce(done ? `${button.dataset.what ?? "Text"} copied` : "The browser refused to copy");
  setTimeout(() => (button.textContent = label), 2000);
});

// What does nothing without this script is shown when it has arrived.
for (const button of document.querySelectorAll("button[data-copy]")) button.hidden = false;

// A program's text that takes a compiler is fetched when its section is first opened.
const loading = new WeakMap();

function loaded(pre) {
  if (!pre.dataset.from) return Promise.resolve();
  if (!loading.has(pre)) loading.set(pre, load(pre));
  return loading.get(pre);
}

async function load(pre) {
  pre.setAttribute("aria-busy", "true");
  try {
    const response = await fetch(pre.dataset.from, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const text = page.getElementById("program");
    const problem = page.querySelector("main .notice.problem");
    if (text) {
      pre.innerHTML = text.innerHTML;
      delete pre.dataset.from;
    } else {
      pre.textContent = problem ? problem.textContent.trim() : `The server answered ${response.status}.`;
      loading.delete(pre);
    }
  } catch (error) {
    pre.textContent = `The server cannot be reached (${error.message}). Close and open to try again.`;
    loading.delete(pre);
  } finally {
    pre.removeAttribute("aria-busy");
  }
}

for (const details of document.querySelectorAll("details.code")) {
  const pre = details.querySelector("pre[data-from]");
  if (!pre) continue;
  details.addEventListener("toggle", () => details.open && loaded(pre));
  if (details.open) loaded(pre); // opened before this script arrived
}

// A choice that changes what the rest of a form asks for.
const choice = document.querySelector("select[data-swaps]");
if (choice) {
  let newest = 0;
  const chosen = async () => {
    const turn = ++newest;
    document.getElementById(choice.dataset.swaps).inert = true; // it asks for what is not chosen any more
    const url = new URL(choice.form.action);
    url.searchParams.set(choice.name, choice.value);
    let html;
    try {
      const response = await fetch(url, { headers: { Accept: "text/html" } });
      if (!response.ok) throw new Error(`it answered ${response.status}`);
      html = await response.text();
    } catch (error) {
      if (turn === newest) location.assign(url); // a page of its own, or the browser's word on why there is none
      return;
    }
    if (turn !== newest) return;
    swap(html, (region) => region.id === choice.dataset.swaps);
    history.replaceState(null, "", url);
    announce(`Arguments of ${choice.value}`);
  };
  choice.addEventListener("change", chosen);
  addEventListener("pageshow", (event) => event.persisted && chosen());
  // Someone may have chosen before this script arrived, or the browser may have restored an earlier choice.
  if (!choice.selectedOptions[0]?.defaultSelected) chosen();
}

follow();

if (document.getElementById("plot")) import("./plot.js").then((plot) => plot.start());

if (document.querySelector("form.try")) import("./docs.js").then((docs) => docs.start());

if (document.querySelector("button[data-png]")) import("./export.js").then((exports) => exports.start());

if (document.getElementById("listing")) import("./listing.js").then((listing) => listing.start());
