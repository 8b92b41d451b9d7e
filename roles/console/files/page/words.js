// The words of status.yml and the report; a test compares this with plugins/module_utils/_onhost/state_words.py.
export const WORDS = {
  "serving": "Serving",
  "loading": "Loading",
  "starting": "Starting",
  "degraded": "Not serving",
  "smaller": "Serving the smaller model",
  "restarting": "Healing by itself",
  "draining": "Draining",
  "maintenance": "Stopped for maintenance",
  "stopped": "Stopped",
  "asleep": "Asleep",
  "unknown": "Unknown",
  "absent": "Nothing is set up"
}

/** For a person; a state that nobody here knows is its own word. */
export function word(state, healthy) {
  const known = state === 'degraded' && healthy ? 'smaller' : state
  return Object.hasOwn(WORDS, known) ? WORDS[known] : state
}
