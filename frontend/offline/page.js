// Says that the server does not answer, in the language that the worker kept, and goes back to the app when it does.

const LOOK_EVERY_MS = 2000;

const kept = (await (await caches.open("offline")).keys()).map(({ url }) => new URL(url).pathname);
const catalogue = kept.findLast((path) => path.startsWith("/js/i18n/"));
const { default: words } = await import(catalogue);

document.documentElement.lang = catalogue.match(/([\w-]+)\.js$/)[1];
for (const element of document.querySelectorAll("[data-text]")) {
  element.textContent = words[element.dataset.text].replace("{address}", location.host);
}

async function look() {
  const answer = await fetch("/healthz", { cache: "no-store" }).catch(() => null);
  if (answer?.ok) location.reload();
  return Boolean(answer?.ok);
}

const status = document.querySelector("[role=status]");
document.querySelector("button").onclick = async () => {
  status.textContent = "";
  if (!(await look())) status.textContent = words["offline.stillNot"];
};
setInterval(look, LOOK_EVERY_MS);
