// Sorts a table of class "sortable" by the column whose heading is clicked, again the other way.
document.addEventListener("click", (event) => {
  const heading = event.target.closest("table.sortable th");
  if (!heading) return;
  const table = heading.closest("table");
  const column = heading.cellIndex;
  const down = heading.getAttribute("aria-sort") !== "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "ascending" : "descending");
  const key = (row) => row.cells[column].textContent.trim();
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => key(a).localeCompare(key(b), undefined, { numeric: true }));
  if (!down) rows.reverse();
  table.tBodies[0].append(...rows);
});
