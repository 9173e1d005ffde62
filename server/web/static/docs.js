// Sends the requests of the page of the API, and shows what is answered.
import { announce } from "./util.js";

const MOST = 200_000; // characters of an answer that are shown

export function start() {
  for (const form of document.querySelectorAll("form.try")) {
    form.querySelector("button").hidden = false;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      send(form);
    });
  }
}

/** The request that a form describes. */
function request(form) {
  let path = form.dataset.path;
  const query = new URLSearchParams();
  const headers = { Accept: "application/json, */*;q=0.5" };
  let body;
  for (const field of form.querySelectorAll("[data-place]")) {
    const { value } = field;
    if (field.dataset.place === "body") body = value;
    else if (field.dataset.place === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(value));
    else if (value === "") continue;
    else if (field.dataset.place === "header") headers[field.name] = value;
    else query.append(field.name, value);
  }
  if (body !== undefined) headers["Content-Type"] = form.dataset.type;
  const asked = query.toString();
  return { url: path + (asked && `?${asked}`), method: form.dataset.method, headers, body };
}

function quoted(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function curl({ url, method, headers, body }) {
  const parts = ["curl"];
  if (method !== "GET") parts.push("-X", method);
  for (const [name, value] of Object.entries(headers)) parts.push("-H", quoted(`${name}: ${value}`));
  if (body !== undefined) parts.push("--data", quoted(body));
  return [...parts, quoted(new URL(url, location.href).href)].join(" ");
}

async function send(form) {
  const asked = request(form);
  const box = form.querySelector(".answer");
  const [status, text] = [box.querySelector(".status"), box.querySelector(".text")];
  box.hidden = false;
  box.querySelector(".curl").textContent = curl(asked);
  status.textContent = "…";
  text.textContent = "";
  try {
    const { url, ...options } = asked;
    const response = await fetch(url, options);
    status.textContent = `${response.status} ${response.statusText}`.trim();
    const found = await response.text();
    text.textContent = pretty(found).slice(0, MOST);
  } catch (error) {
    status.textContent = `No answer: ${error.message}`;
  }
  announce(`${asked.method} ${asked.url}: ${status.textContent}`);
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // not JSON: as it is
  }
}
