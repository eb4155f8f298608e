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
  }),
  models: applyModels,
  "models.updated": applyModels,
  tools: (state, { tools }) => ({ ...state, tools }),
  "facts.changed": (state) => ({ ...state, factsRevision: state.factsRevision + 1 }),
  connection: (state, { value }) => ({ ...state, connection: value }),
  "chat.created": putChat,
  "chat.updated": putChat,
  "chat.deleted": (state, { chat_id }) => {
    const { [chat_id]: _, ...chats } = state.chats;
    return { ...state, chats };
  },
};

function putChat(state, { chat }) {
  return { ...state, chats: { ...state.chats, [chat.id]: chat } };
}

function applyModels(state, event) {
  return {
    ...state,
    models: event.models,
    defaultModel: event.default_model,
    modelBackend: event.model_backend,
    modelServer: event.model_server ?? state.modelServer,
  };
}
