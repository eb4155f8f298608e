// Files that leave the page, and files that are let fall onto it.

// The browser reads the file some time after the click.
const KEPT_MS = 10_000;

/** Hand a text to the person as a file; `content` is a text or its pieces. */
export function saveFile({ filename, content }) {
  const url = URL.createObjectURL(new Blob([content].flat()));
  Object.assign(document.createElement("a"), { href: url, download: filename }).click();
  setTimeout(() => URL.revokeObjectURL(url), KEPT_MS);
}

/** Files dropped anywhere on the page are offered to be taken in; without this, the browser would leave the page for them. */
export function listenToFiles(target, { ui }) {
  const holdsFiles = (event) => event.dataTransfer?.types.includes("Files");
  target.addEventListener("dragover", (event) => holdsFiles(event) && event.preventDefault());
  target.addEventListener("drop", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    if (!ui.dialog.value) ui.openDialog("import", { files: [...event.dataTransfer.files] });
  });
}
