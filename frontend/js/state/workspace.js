// What holds for the whole workspace: chats, models, the server's settings, the connection. Pure functions.

export const emptyWorkspace = {
  connection: "connecting",
  everConnected: false,
  serverVersion: null,
  chats: {},
  models: [],
  defaultModel: null,
  modelBackend: null,
  modelServer: null,
  // What happened to Ollama since the page was opened and was not acknowledged: "came", "gone" or null.
  modelNews: null,
  pulls: {},
  settings: {},
  tools: [],
  factsRevision: 0,
};

export function reduceWorkspace(state, event) {
  return handlers[event.type]?.(state, event) ?? state;
}

const handlers = {
  welcome: (state, event) => ({
    ...applyModels(state, event),
    everConnected: true,
    serverVersion: event.server_version,
    chats: Object.fromEntries(event.chats.map((chat) => [chat.id, chat])),
    settings: event.settings,
    pulls: Object.fromEntries((event.pulls ?? []).map((pull) => [pull.name, pull])),
  }),
  models: applyModels,
  "models.updated": applyModels,
  "model.pull": (state, { pull }) => ({ ...state, pulls: { ...state.pulls, [pull.name]: pull } }),
  "pull.dismissed": (state, { name }) => ({ ...state, pulls: without(state.pulls, name) }),
  "news.dismissed": (state) => ({ ...state, modelNews: null }),
  tools: (state, { tools }) => ({ ...state, tools }),
  "facts.changed": (state) => ({ ...state, factsRevision: state.factsRevision + 1 }),
  connection: (state, { value }) => ({ ...state, connection: value }),
  "chat.created": putChat,
  "chat.updated": putChat,
  "chat.deleted": (state, { chat_id }) => ({ ...state, chats: without(state.chats, chat_id) }),
};

function without(object, name) {
  const { [name]: _, ...rest } = object;
  return rest;
}

function putChat(state, { chat }) {
  return { ...state, chats: { ...state.chats, [chat.id]: chat } };
}

function applyModels(state, event) {
  return {
    ...state,
    models: event.models,
    defaultModel: event.default_model,
    modelBackend: event.model_backend,
    modelNews: newsOf(state.modelBackend, event.model_backend, state.modelNews),
    modelServer: event.model_server ?? state.modelServer,
  };
}

function newsOf(before, now, known) {
  if (before === null || (before === "ollama") === (now === "ollama")) return known;
  return now === "ollama" ? "came" : "gone";
}
