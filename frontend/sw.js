// Shows a page of its own when the server can't be reached. Everything comes from the network, so nothing is ever
// stale; what is kept is that page, for when the network has nothing. It knows no chat.

const CACHE = "offline";
const PAGE = "/offline/page.html";
const FILES = [PAGE, "/offline/page.css", "/offline/page.js", "/css/tokens.css", "/icon.svg"];

const catalogue = (language) => `/js/i18n/${language}.js`;

async function keep(language) {
  const files = [...FILES, catalogue(language)];
  const cache = await caches.open(CACHE);
  await cache.addAll(files);
  for (const { url } of await cache.keys()) if (!files.includes(new URL(url).pathname)) await cache.delete(url);
}

async function kept(path, error) {
  const answer = await caches.match(path, { cacheName: CACHE });
  if (!answer) throw error;
  return answer;
}

// A worker that serves no part of the app may take over from the one before at once.
addEventListener("install", (event) => event.waitUntil(keep("en").then(skipWaiting)));
addEventListener("activate", (event) => event.waitUntil(clients.claim()));

// The page says which language it speaks. When the server is gone by now, the files of last time stay.
addEventListener("message", (event) => event.waitUntil(keep(event.data.language).catch(() => null)));

addEventListener("fetch", (event) => {
  const { pathname } = new URL(event.request.url);
  const path = event.request.mode === "navigate" ? PAGE : pathname;
  if (FILES.includes(path) || path.startsWith("/js/i18n/")) event.respondWith(fetch(event.request).catch((error) => kept(path, error)));
});
