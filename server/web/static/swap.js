// Replaces regions of this page by those of a newer version of it, as the server rendered them.

/** Replaces every `[data-region]` that `wanted` selects and that differs; keeps the focus. */
export function swap(html, wanted = () => true) {
  const page = new DOMParser().parseFromString(html, "text/html");
  for (const old of document.querySelectorAll("[data-region]")) {
    const fresh = page.getElementById(old.id);
    if (!fresh || !wanted(old) || fresh.outerHTML === old.outerHTML) continue;
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const open = new Set([...old.querySelectorAll("details[open][id]")].map((d) => d.id));
    const values = valuesOf(old);
    old.replaceWith(document.adoptNode(fresh));
    for (const details of fresh.querySelectorAll("details[id]")) details.open ||= open.has(details.id);
    for (const [id, value] of values) {
      const field = document.getElementById(id);
      if (field?.type === "checkbox") {
        field.checked = value;
        continue;
      }
      if (field && (!field.options || [...field.options].some((o) => o.value === value))) field.value = value;
    }
    if (focused) twin(fresh, focused)?.focus({ preventScroll: true });
  }
  return page;
}

// What was typed into fields that came back the same (they have ids).
function valuesOf(region) {
  const changed = [...region.querySelectorAll("input[id], textarea[id], select[id]")].filter((field) =>
    field.options
      ? !field.selectedOptions[0]?.defaultSelected
      : field.value !== field.defaultValue || field.checked !== field.defaultChecked,
  );
  return changed.map((field) => [field.id, field.type === "checkbox" ? field.checked : field.value]);
}

function twin(fresh, focused) {
  if (focused.id) return document.getElementById(focused.id);
  const href = focused.getAttribute("href");
  return href && fresh.querySelector(`a[href="${CSS.escape(href)}"]`);
}
