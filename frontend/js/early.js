// Runs before the first paint, so that neither a chosen theme nor a language comes late; a classic script on purpose.
{
  const page = document.documentElement;
  const languages = page.dataset.languages.split(" ");

  // Forbidden storage, or something else in it: what the system says is right.
  const stored = (key) => {
    try {
      return JSON.parse(localStorage.getItem(`cleanroom.${key}`));
    } catch {
      return null;
    }
  };
  const spoken = (tag) => languages.find((language) => language === tag) ?? languages.find((language) => language === tag.split("-")[0]);

  const theme = stored("theme");
  if (theme === "light" || theme === "dark") page.dataset.theme = theme;

  page.dataset.automatic = navigator.languages.map(spoken).find(Boolean) ?? "en";
  const chosen = stored("language");
  page.lang = languages.includes(chosen) ? chosen : page.dataset.automatic;
  document.head.append(Object.assign(document.createElement("link"), { rel: "modulepreload", href: `/js/i18n/${page.lang}.js` }));
}
