// Runs before the first paint, so that a chosen theme does not flash; a classic script on purpose.
(() => {
  const theme = (localStorage.getItem("cleanroom.theme") ?? "").replaceAll('"', "");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
