// Marks the lines that belong to the one that is pointed at, or has the focus.

export function start() {
  const listing = document.getElementById("listing");
  let marked = [];
  const mark = (event) => {
    const line = event.target.closest("tr[data-line]")?.dataset.line;
    if (!line || marked[0]?.dataset.line === line) return;
    for (const row of marked) row.classList.remove("marked");
    marked = [...listing.querySelectorAll(`tr[data-line="${line}"]`)];
    for (const row of marked) row.classList.add("marked");
  };
  listing.addEventListener("pointerover", mark);
  listing.addEventListener("focusin", mark);
}
