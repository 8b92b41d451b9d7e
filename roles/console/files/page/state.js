// What a state document means, in words. Nothing here touches the page.
import { WORDS, word } from './words.js'

/** The document that this page knows; the server says which one it sends. */
export const SCHEMA = 2
/** Seconds after which what is shown is old. */
export const OLD = 15
/** Share and bytes of a disk below which it is full: those of plugins/module_utils/_onhost/limits.py. */
export const LEFT = 0.05, LITTLE = 21474836480

const LISTS = ['groups', 'hosts', 'keys', 'events', 'jobs', 'store']

/** What is wrong with an answer that should be a state document; empty if nothing is. */
export function unreadable(told) {
  if (told === null || typeof told !== 'object') return 'The head sends something else than its state.'
  if (told.schema !== SCHEMA) return `The head sends version ${String(told.schema).slice(0, 20)} of its state, and this page reads version ${SCHEMA}. Load the page anew; if that does not help, run site.yml.`
  const whole = typeof told.time === 'number' && LISTS.every(name => Array.isArray(told[name])) &&
    told.history && typeof told.history.series === 'object' &&
    [told.versions?.same, told.versions?.differ, told.checks?.lines, told.checks?.findings, told.checks?.drift].every(Array.isArray) &&
    told.groups.every(one => Array.isArray(one.hosts) && Array.isArray(one.missing) && Array.isArray(one.without) && Array.isArray(one.loads) && one.proof) &&
    (told.drawing === null || (Array.isArray(told.drawing?.cables) && Array.isArray(told.drawing.boxes)))
  return whole ? '' : 'The head sends only a part of its state.'
}

const TONES = { good: 'good', busy: 'busy', warn: 'warn', bad: 'bad', away: 'bad', drain: 'warn', idle: 'idle', moon: 'idle' }

export const tone = shape => TONES[shape] || 'idle'

/** 93784 s as "1 d 2 h"; two units at most. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return 'an unknown time'
  const s = Math.max(0, Math.round(seconds))
  if (s < 60) return `${s} s`
  if (s < 3600) return `${Math.floor(s / 60)} min${s % 60 && s < 600 ? ` ${s % 60} s` : ''}`
  if (s < 86400) return `${Math.floor(s / 3600)} h${s % 3600 >= 60 ? ` ${Math.floor(s % 3600 / 60)} min` : ''}`
  return `${Math.floor(s / 86400)} d${s % 86400 >= 3600 ? ` ${Math.floor(s % 86400 / 3600)} h` : ''}`
}

export const gib = bytes => (bytes / 1073741824).toFixed(1)

/** Bytes of a disk, as shops count them. */
export const disk = bytes => tied(bytes >= 1e12 ? `${(bytes / 1e12).toFixed(1)} TB` : `${Math.round(bytes / 1e9)} GB`)

/** Numbers with at most three digits that say something; a dash for what is not known. */
export function figure(value) {
  if (value === null || value === undefined || !isFinite(value)) return '—'
  if (value !== 0 && Math.abs(value) < 10) return String(Math.round(value * 100) / 100)
  return Math.round(value).toLocaleString('en', Math.abs(value) < 1e7 ? {} : { notation: 'compact', maximumFractionDigits: 1 })
}

export const count = (number, word) => `${figure(number)} ${word}${number === 1 ? '' : 's'}`

/** A number stays on the line of its unit. */
export const tied = text => typeof text !== 'string' ? text : text.replace(/(\d) (?=%|(?:d|h|min|s|ms|GB|TB|GiB|Gb\/s|hosts?|loads?)\b)/g, '$1\u00a0')

export const clock = seconds => new Date(seconds * 1000).toTimeString().slice(0, 8)

/** The name under which a person knows a group. */
export const named = (group, all) => all.length > 1 ? group.name : 'the group'

/** Why an answer is none: the head's own words, or those of the API, which have another form. */
export async function refusal(answer) {
  let told = ''
  try { const found = await answer.json(); told = found.error?.message || found.error || found.message || '' } catch { /* no JSON */ }
  return typeof told === 'string' ? told.slice(0, 500) : ''
}

const list = names => names.length < 2 ? names.join('') : `${names.slice(0, -1).join(', ')} and ${names[names.length - 1]}`

const about = seconds => seconds < 60 ? 'less than a minute' : `about ${Math.round(seconds / 60)} min`

/** How long a load still takes; empty where nobody can say. */
function eta(group) {
  if (group.left === null) return ''
  const by = group.former ? `as the last ${group.former === 1 ? 'load' : `${group.former} loads`} went` : 'until the weights are there, by their pace so far'
  return `${about(group.left)[0].toUpperCase()}${about(group.left).slice(1)} to go, ${by}. `
}

/** What former loads of the same model took. */
export const loads = group => `The last ${group.loads.length === 1 ? 'load' : `${group.loads.length} loads`} took ${list(group.loads.map(one => duration(one.seconds)))}.`

/** What a load costs those who wait. */
export function costs(group) {
  const took = group.loads.map(one => one.seconds).filter(one => one !== null).sort((a, b) => a - b)
  return took.length ? `Then the model loads: ${about(took[took.length >> 1])} without answers, as its former loads took.` : 'Then the model loads, which takes minutes without answers.'
}

/** The parts of a host's memory as [class, bytes]: the sum is measured, the parts are the plan's. */
export function parts(host, groups) {
  const { memory, planned } = host
  const used = memory.total - memory.left
  const own = groups.filter(one => one.hosts.includes(host.name))
  if (!planned || own.length !== 1) return [['u', used]]
  const { state } = own[0]
  const wanted = [['w', planned.weights], ['k', planned.cache], ['b', planned.overhead]]
  const whole = planned.weights + planned.cache + planned.overhead
  if (state === 'loading' || state === 'starting') return [['w', used], ['p', Math.max(0, Math.min(memory.left, whole - used))]]
  if (!['serving', 'draining'].includes(state)) return [['o', used]]
  let rest = used
  const found = wanted.map(([kind, bytes]) => { const here = Math.min(rest, bytes); rest -= here; return [kind, here] })
  return [...found, ['o', rest]]
}

/** Bytes a second of a link with a carrier, in words; what is below a tenth of a Gb/s is no traffic of a model. */
export const pace = bytes => bytes === null ? 'up' : bytes < 12500000 ? 'idle' : `${figure(bytes * 8 / 1e9)} Gb/s`

/** Each half of a cable with what its ends say: `cut`, and `words` (null where neither end has told). */
export function halves(doc) {
  const of = ([host, netdev]) => (doc.hosts.find(one => one.name === host && one.answers)?.links || []).find(one => one.netdev === netdev)
  const placed = []
  return doc.drawing.cables.map(({ line, label: [x, high, side], ends }) => {
    const told = ends.map(of).filter(one => one)
    const bytes = Math.max(0, ...told.map(one => one.bytes || 0))
    const cut = told.some(one => !one.up)
    const words = told.length ? pace(bytes) : null
    // both halves of a cable to a switch have their words in one place: the same is said once, others stand below
    const text = cut ? 'cut' : words
    const near = placed.filter(one => Math.abs(one.x - x) < 90 && Math.abs(one.high - high) < 26)
    if (!near.length) placed.push({ x, high, text })
    return { line, label: [x, near.length ? high + 18 : high, side], text: near.some(one => one.text === text) ? '' : text,
      name: ends.map(end => end.join(' ')).join(' to '), cut, words }
  })
}

/** Names as they fit in boxes of that width: where one is too long, without what all of them begin with. */
export function short(names, wide) {
  let same = names.length > 1 ? names[0].length : 0
  for (const name of names) while (!name.startsWith(names[0].slice(0, same))) same -= 1
  // a number stays whole
  while (same && /\d/.test(names[0][same - 1])) same -= 1
  const fits = names.every(name => name.length * 20 < wide)
  return Object.fromEntries(names.map(name => [name, fits || name.length === same ? name : name.slice(same)]))
}

/** With a capital and a full stop. */
export const sentence = text => `${text.slice(0, 1).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) || !text ? '' : '.'}`

/** What a group is doing: `shape`, `title` for the tab, `verdict`, and `say`, one or two sentences. */
export function verdict(group, now) {
  const model = group.model || 'The model'
  const since = group.since === null ? null : now - group.since
  const spell = duration(since)
  const where = group.hosts.length === 1 ? 'one host' : `${group.hosts.length} hosts`
  const own = word(group.state, group.healthy)
  const asked = 'Requests get 503 with Retry-After until it answers.'
  switch (group.state) {
    case 'serving': {
      const proof = group.proof.age === null ? '' :
        ` The last proof is ${duration(group.proof.age)} old${group.proof.seconds === null ? '' : `: one token in ${figure(group.proof.seconds)} s`}.`
      if (group.without.length) return { shape: 'warn', title: WORDS.smaller, verdict: WORDS.smaller,
        say: `${model} answers without ${list(group.without)}. The full model starts again when it is back.${proof}` }
      return { shape: 'good', title: own, verdict: own, say: `${model} on ${where} for ${spell}.${proof}` }
    }
    case 'starting':
    case 'loading': {
      const percent = group.percent === null ? '' : ` ${group.percent} %`
      return { shape: 'busy', title: `${own}${percent}`, verdict: `${own}${percent}`, say: `${model} has been starting on ${where} for ${spell}. ${eta(group)}${asked}` }
    }
    case 'draining':
      return { shape: 'drain', title: own, verdict: `${own}: ${count((group.running || 0) + (group.waiting || 0), 'request')} left`,
        say: 'New requests get 503 with Retry-After. Those that run may end.' }
    case 'restarting':
      return { shape: 'busy', title: own, verdict: own, say: `${sentence(group.detail || 'The watchdog restarts the group')} ${asked}` }
    case 'degraded':
      if (group.healthy) return { shape: 'warn', title: own, verdict: own, say: `${sentence(group.detail || group.line)} The full model starts again when all hosts are back.` }
      return { shape: 'away', title: own, verdict: group.missing.length ? `${own}: ${list(group.missing)} ${group.missing.length > 1 ? 'are' : 'is'} away` : own,
        say: `${sentence(group.detail || group.line)} It goes on by itself when all hosts are back.` }
    case 'stopped':
      return { shape: 'idle', title: own, verdict: own, say: `${sentence(group.stopped || group.detail || 'Somebody stopped it')} It stays stopped, also after reboots, until somebody starts it.` }
    case 'asleep':
      // the marker of a group that gave way says which one serves instead
      return { shape: 'moon', title: own, verdict: own, say: `${group.stopped ? `It gave way: ${group.stopped.replace('asleep: ', '')}. ` : ''}${model} starts when it is asked for.` }
    case 'maintenance':
      return { shape: 'idle', title: own, verdict: own, say: sentence(group.detail || group.line) }
    case 'unknown':
      return { shape: 'away', title: own, verdict: own, say: `${group.problem} On the head, journalctl -u ${group.id ? `sparkthor-watchdog-${group.id}` : 'sparkthor-watchdog'} has more.` }
    default:
      return { shape: group.healthy ? 'good' : 'warn', title: own, verdict: own, say: sentence(group.detail || group.line) }
  }
}

/** The group that needs a person first. */
export function first(groups) {
  const order = ['bad', 'away', 'warn', 'busy', 'drain', 'idle', 'good', 'moon']
  return [...groups].sort((a, b) => order.indexOf(verdict(a, 0).shape) - order.indexOf(verdict(b, 0).shape))[0]
}

/** What the driver calls what slows a GPU down, for people. */
const SLOWED = new Map([['sw_power_cap', 'its limit of power'], ['hw_slowdown', 'heat or power'], ['sw_thermal_slowdown', 'heat'], ['hw_thermal_slowdown', 'heat'], ['hw_power_brake', 'its power supply']])

/** As status.yml and the doctor judge it. */
export const full = room => room.left < LEFT * room.total && room.left < LITTLE

/** What fails next on a host, or is amiss: sentences. */
export function worries(host) {
  const found = []
  if (host.age === null) return [`${host.name} has not answered yet`]
  if (!host.answers) return [`${host.name} has not answered for ${duration(host.age)}: look at its power and its cable`]
  if (host.disk && full(host.disk)) found.push(`${host.name} has ${disk(host.disk.left)} left on the disk of the models; a start writes about 20 GB: playbooks/models.yml removes models`)
  const down = (host.links || []).filter(link => !link.up).map(link => link.netdev)
  if (down.length) found.push(`${host.name} has no carrier on ${list(down)}: look at the plugs at both ends`)
  for (const gpu of host.gpus || []) if (gpu.slowed) found.push(`${host.name}: GPU ${gpu.gpu} is slowed down by ${list([...new Set(gpu.slowed.map(one => SLOWED.get(one) || one))])}`)
  if (host.firewall === false) found.push(`${host.name}: the firewall is not the wanted one: run site.yml`)
  if (host.gpus && !host.gpus.length) found.push(`${host.name} shows no GPU`)
  return found
}

/** Of wishes, the newest first, those to tell of: what ended a minute ago, what failed for an hour or until a later one did not. */
export const recent = (jobs, now) => jobs.filter((job, index) => {
  if (job.state === 'running') return true
  const since = now - job.at - (job.seconds || 0)
  if (job.state === 'done') return since < 60
  const same = one => one.group === job.group && one.key === job.key && !VERBS[one.do]?.key === !VERBS[job.do]?.key
  return since < 3600 && !jobs.slice(0, index).some(one => one.state === 'done' && same(one))
})

/** Whether it takes requests: a smaller model in the place of its own counts. */
export const answers = group => group.state === 'serving' || (group.state === 'degraded' && group.healthy)

/** What may be done with a group in its state: verbs, the first one is the one to offer. */
export function actions(group) {
  if (!group.here) return []
  switch (group.state) {
    case 'stopped': return ['start']
    case 'asleep': return ['wake']
    case 'draining': return ['resume', 'stop']
    case 'serving': return ['drain', 'restart', 'stop']
    default: return ['restart', 'stop']
  }
}

export const VERBS = {
  start: { name: 'Start', loads: true, what: ['It serves again, after reboots too.'] },
  wake: { name: 'Wake', what: ['The group that serves in its place gives way; requests of that one may end first. Of a group on demand, its idle time and hours count as for any request.'] },
  block: { name: 'Block', key: true, why: true, danger: true, what: ['This head refuses it like a key that nobody knows, from now on. Answers that run may end.', 'It stays blocked until somebody unblocks it here. Other heads have pages of their own; for all of them, end it with playbooks/keys.yml.'] },
  unblock: { name: 'Unblock', key: true, what: ['This head takes its requests again, within its limits.'] },
  resume: { name: 'Take requests again', whole: true, what: ['A drain ends, and nothing is stopped after it.'] },
  drain: { name: 'Drain', why: true, what: ['Those that run may end, for at most 10 min; new ones get 503 with Retry-After.', 'It stays so until somebody takes requests again.'] },
  restart: { name: 'Restart', why: true, loads: true, what: ['Requests that run may end first, for at most 5 min; new ones get 503 with Retry-After.'] },
  stop: { name: 'Stop', why: true, typed: true, danger: true, what: ['Requests that run may end first, for at most 10 min; new ones get 503.', 'It stays stopped, also after reboots, until somebody starts it.'] }
}
