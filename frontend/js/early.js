// Runs before the first paint, so that a chosen theme does not flash; a classic script on purpose.
try {
  const theme = JSON.parse(localStorage.getItem("cleanroom.theme"));
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage is forbidden or holds something else: the system's theme is right.
}
