// Small things that several modules use.

/** Tells screen readers; what was told last is not told again. */
export function announce(text) {
  const region = document.getElementById("announce");
  if (text && region.textContent !== text) region.textContent = text;
}

/** Copies text; resolves to whether it worked. */
export async function copyText(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Refused, or no permission: the older way may still be allowed.
    }
  }
  // Over plain HTTP, from another machine, browsers have no navigator.clipboard.
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "visually-hidden";
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return done;
}

/** Seconds as `5.03 ms`: three significant digits, as the server writes them. */
export function formatSeconds(seconds) {
  for (const [unit, scale] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) {
    if (seconds >= scale) return `${significant(seconds / scale)} ${unit}`;
  }
  return `${significant(seconds / 1e-9)} ns`;
}

function significant(value) {
  return String(Number(value.toPrecision(3)));
}
