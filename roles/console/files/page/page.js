// The page of a cluster. It asks for one document each two seconds and draws it; it keeps no secret beyond the tab.
import { html, render, useEffect, useRef, useState } from './vendor/preact.js'
import { Chat, Command } from './chat.js'
import { WORDS, word } from './words.js'
import { OLD, VERBS, actions, answers, clock, costs, count, disk, duration, figure, first, full, gib, halves, loads, named, pace, parts, recent, refusal, sentence, short, tied, tone, unreadable, verdict, worries } from './state.js'

const SHAPES = {
  good: html`<circle cx="8" cy="8" r="7"/><path d="M4.6 8.3l2.3 2.3 4.5-4.9" fill="none" stroke="var(--panel)" stroke-width="1.9" stroke-linecap="round" stroke-linejoin="round"/>`,
  busy: html`<circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="2" opacity=".3"/><path d="M8 2a6 6 0 0 1 5.2 9" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round"/>`,
  warn: html`<path d="M8 1.2l7.2 13H.8z" stroke-linejoin="round"/><path d="M8 5.7v4M8 12v.2" stroke="var(--panel)" stroke-width="1.8" stroke-linecap="round"/>`,
  bad: html`<path d="M5 1h6l4 4v6l-4 4H5l-4-4V5z"/><path d="M5.6 5.6l4.8 4.8M10.4 5.6l-4.8 4.8" stroke="var(--panel)" stroke-width="1.8" stroke-linecap="round"/>`,
  away: html`<circle cx="8" cy="8" r="6.2" fill="none" stroke="currentColor" stroke-width="1.8" stroke-dasharray="3 2.4"/>`,
  drain: html`<circle cx="8" cy="8" r="7"/><path d="M5.9 4.9v6.2M10.1 4.9v6.2" stroke="var(--panel)" stroke-width="1.9" stroke-linecap="round"/>`,
  idle: html`<circle cx="8" cy="8" r="6.2" fill="none" stroke="currentColor" stroke-width="1.8"/>`,
  moon: html`<path d="M13.2 10.2A6 6 0 0 1 5.8 2.8a6 6 0 1 0 7.4 7.4z"/>`,
  person: html`<circle cx="8" cy="5" r="3"/><path d="M2.5 14.5a5.5 5.5 0 0 1 11 0z"/>`,
  dot: html`<circle cx="8" cy="8" r="3"/>`
}
const Shape = ({ name, toned }) => html`<svg viewBox="0 0 16 16" fill="currentColor" aria-hidden="true" class=${toned ? `tone-${tone(name)}` : ''}>${SHAPES[name] || SHAPES.dot}</svg>`

/** A name with hyphens stays on one line where it can, and so does an option. */
const unbroken = text => typeof text !== 'string' ? text : tied(text).split(/(\S*-\S+)/).map((part, index) => index % 2 && part.length < 24 ? html`<span class="one">${part}</span>` : part)

/** Asks for the state each two seconds, each 15 when nobody looks, and never twice at once. */
function useNews(token, leave) {
  const [news, setNews] = useState({ document: null, at: 0, right: '', key: '', problem: '' })
  useEffect(() => {
    if (!token) return undefined
    let over = false
    let timer = 0
    let waits = false
    const ask = async () => {
      waits = true
      const abort = AbortSignal.timeout(8000)
      try {
        const answer = await fetch('state', { headers: { Authorization: `Bearer ${token}` }, signal: abort, cache: 'no-store' })
        if (over) return
        if (answer.status === 401) return leave('This key is not known here, or may not see this page. Keys have 16 characters or more; a key that was ended with keys.yml is refused like any other.')
        if (!answer.ok) throw new Error(await refusal(answer) || `The head answers ${answer.status}.`)
        const told = await answer.json()
        if (over) return
        const amiss = unreadable(told)
        if (amiss) throw new Error(amiss)
        setNews({ document: told, at: Date.now(), problem: '', right: answer.headers.get('X-Sparkthor-Right') || 'view', key: answer.headers.get('X-Sparkthor-Key') || '' })
      } catch (error) {
        if (!over) setNews(old => ({ ...old, problem: error.name === 'TimeoutError' || error instanceof TypeError ? 'The head does not answer.' : error instanceof SyntaxError ? 'The head sends something else than its state.' : error.message }))
      }
      waits = false
      if (!over) timer = setTimeout(ask, document.hidden ? 15000 : 2000)
    }
    const seen = () => { if (!document.hidden && !waits) { clearTimeout(timer); ask() } }
    ask()
    document.addEventListener('visibilitychange', seen)
    return () => { over = true; clearTimeout(timer); document.removeEventListener('visibilitychange', seen) }
  }, [token])
  return news
}

/** Seconds now, so that ages grow between two answers. */
function useSeconds() {
  const [now, set] = useState(Date.now())
  useEffect(() => { const timer = setInterval(() => set(Date.now()), 1000); return () => clearInterval(timer) }, [])
  return now
}

function Gate({ problem, enter }) {
  const [text, setText] = useState('')
  const field = useRef(null)
  // what was refused is typed anew
  useEffect(() => { if (problem) field.current.focus() }, [problem])
  const [health, setHealth] = useState(null)
  useEffect(() => {
    let over = false
    const ask = async () => {
      try { const told = await (await fetch('../health')).json(); if (!over) setHealth(String(told.status || '').slice(0, 40)) } catch { if (!over) setHealth('') }
    }
    ask()
    const timer = setInterval(ask, 5000)
    return () => { over = true; clearInterval(timer) }
  }, [])
  const known = health === 'serving' ? 'good' : health === 'loading' ? 'busy' : health ? 'warn' : health === null ? 'idle' : 'away'
  return html`<main id="main"><div class="gate"><div class=${`state tone-${tone(known)}`}><${Shape} name=${known}/><h1>${health ? word(health, false) : health === null ? 'One moment' : 'No news'}</h1></div>
    <p class="soft">This is what everybody on the network may know. The rest needs a key.</p>
    <form onSubmit=${event => { event.preventDefault(); if (text.trim()) enter(text.trim()) }}>
      ${problem && html`<p class="err" role="alert" id="why"><${Shape} name="bad"/><span>${problem}</span></p>`}
      <div><label for="k">API key</label><input id="k" ref=${field} type="password" autocomplete="current-password" aria-describedby=${problem ? 'why' : undefined} value=${text} onInput=${event => setText(event.target.value)} aria-invalid=${problem ? 'true' : 'false'}/></div>
      <p class="small soft">It goes to this head only and is forgotten with this tab. The owner has it in the inventory (<span class="mono">.secrets/api_key</span>) on the controller.</p>
      <button class="main">Show the cluster</button></form></div></main>`
}

const Figure = ({ name, value, unit, usual }) => html`<div><dt>${name}</dt><dd>${value} <small>${unit}</small></dd><dd class="usual">${usual}</dd></div>`

function Figures({ group }) {
  if (!answers(group) && group.state !== 'draining') return null
  return html`<dl class="figures">
    <${Figure} name="Tokens a second" value=${figure(group.tokens_per_second)} unit="" usual=${group.accepted === null ? 'of all answers together' : `${figure(group.accepted * 100)} % of drafted tokens accepted`}/>
    <${Figure} name="Requests" value=${figure(group.running)} unit=${group.running === null ? '' : 'running'} usual=${group.waiting === null ? '' : group.waiting ? `${figure(group.waiting)} wait` : 'none waits'}/>
    <${Figure} name="First token" value=${group.first_token === null ? '—' : figure(group.first_token)} unit=${group.first_token === null ? '' : 's'} usual="mean of the last seconds"/>
    <${Figure} name="Cache in use" value=${group.cache === null ? '—' : figure(group.cache * 100)} unit=${group.cache === null ? '' : '%'} usual=${group.answers ? `${group.answers.right} of ${group.answers.asked} simple tasks right after the start` : ''}/></dl>`
}

function Now({ doc, group, now, ask, pin, stale }) {
  const told = verdict(group, now)
  const others = doc.groups.filter(one => one !== group)
  const worried = doc.hosts.flatMap(worries)
  const loading = ['loading', 'starting'].includes(group.state)
  return html`<section id="now" aria-labelledby="v"><div class="verdict"><div role="status"><div class=${`state tone-${tone(told.shape)}`}><${Shape} name=${told.shape}/><h1 id="v">${doc.groups.length > 1 ? `${group.name}: ` : ''}${unbroken(told.verdict)}</h1></div><p class="say">${unbroken(told.say)}</p></div>
    <div class="acts">${actions(group).map((verb, index) => html`<button type="button" class=${index === 0 && ['start', 'wake', 'resume'].includes(verb) ? 'main' : ''} disabled=${stale || doc.playbook !== null} onClick=${() => ask({ verb, group })}>${VERBS[verb].name}${VERBS[verb].typed ? '…' : ''}</button>`)}</div></div>
    ${loading && html`<div class="panel load"><div role="progressbar" aria-label="Loading" aria-valuemin="0" aria-valuemax="100" aria-valuenow=${group.percent ?? 0}><div class="bar2" style=${{ '--f': `${group.percent ?? 0}%` }}><i></i></div></div><p class="says mono">${group.progress}</p>${group.loads.length > 0 && html`<p class="says small">${tied(loads(group))}</p>`}</div>`}
    ${doc.playbook && html`<div class="fix tone-busy"><p><b>${doc.playbook.play}</b> runs, by ${doc.playbook.owner}. Nothing can be changed from here until it has ended.</p></div>`}
    ${recent(doc.jobs, now).slice(0, 2).map(job => html`<div key=${job.at} class=${`fix tone-${job.state === 'failed' ? 'bad' : job.state === 'done' ? 'good' : 'busy'}`}><p role="status"><b>${VERBS[job.do]?.name || job.do}${job.key ? ` ${job.key}` : ''}</b> ${job.state === 'running' ? `goes on for ${duration(now - job.at)}` : job.state === 'done' && job.do === 'wake' && job.group ? 'is noted for a minute' : job.state}, asked for by ${job.who}${job.text ? `: ${job.text}` : ''}</p></div>`)}
    ${worried.length > 0 && html`<ul class="worries">${worried.map(text => html`<li key=${text}><${Shape} name="warn" toned/><span>${unbroken(text)}</span></li>`)}</ul>`}
    <${Figures} group=${group}/>
    ${others.length > 0 && html`<ul class="groups" aria-label="Other serving groups">${others.map(one => { const its = verdict(one, now); return html`<li key=${one.name}><${Shape} name=${its.shape} toned/><b>${one.name}</b><span class="soft">${its.verdict}: ${one.model}</span><button type="button" class="quiet" onClick=${() => pin(one.name)}>Show<span class="vh"> ${one.name}</span></button></li>` })}</ul>`}
  </section>`
}

const share = (part, whole) => `${Math.min(100, Math.max(0, 100 * part / whole)).toFixed(1)}%`

function HostRow({ host, groups }) {
  const { memory, disk: room } = host
  const gpus = host.gpus || []
  const old = !host.answers
  return html`<tr class=${old ? 'away' : ''}><th scope="row" class="host"><b class=${host.name.length > 20 ? 'long' : ''}>${host.name}</b><span class="small soft">${old ? (host.age === null ? 'has not answered yet' : tied(`no answer for ${duration(host.age)}`)) : host.uptime !== null && host.uptime < 3600 ? tied(`up ${duration(host.uptime)}`) : host.address === host.name ? '' : host.address}</span></th>
    <td class="memory" data-name="Memory">${memory ? html`<div class="mem" role="img" aria-label=${`${gib(memory.left)} GiB left of ${gib(memory.total)}`}>${parts(host, groups).map(([kind, bytes]) => html`<i key=${kind} class=${kind} style=${{ '--w': share(bytes, memory.total) }}></i>`)}</div><span class="small soft">${gib(memory.left)} GiB left of ${gib(memory.total)}</span>` : '—'}</td>
    <td data-name="GPU">${gpus.length ? gpus.map(gpu => html`<div key=${gpu.gpu}>${gpu.share === undefined ? '—' : `${figure(gpu.share * 100)} %`}${gpu.celsius === undefined ? '' : html` <span class="soft small">${figure(gpu.celsius)} °C</span>`} <span class="soft small draws">${[[gpu.watts, 1, 'W'], [gpu.hertz, 1e6, 'MHz']].filter(([value]) => value !== undefined).map(([value, by, unit]) => `${figure(value / by)} ${unit}`).join(' · ')}</span></div>`) : '—'}</td>
    <td data-name="Links" class="links">${(host.links || []).map(link => html`<div class="small" key=${link.netdev}>${link.up ? '' : '✕ '}${link.netdev} <span class="soft">${link.up ? (pace(link.bytes)) : 'no carrier'}</span></div>`)}</td>
    <td data-name="Disk">${room ? html`<div class="mem thin" role="img" aria-label=${`${disk(room.left)} left of ${disk(room.total)}`}><i class=${full(room) ? 'x' : 'f'} style=${{ '--w': share(room.total - room.left, room.total) }}></i></div><span class=${`small ${full(room) ? 'tone-bad' : 'soft'}`}>${disk(room.left)} left</span>` : '—'}</td></tr>`
}

/** The largest letters with which a text stays in its box, for the style sheet to take or to go below. */
const fitted = (text, wide) => ({ '--fits': `${((wide - 14) / Math.max(1, text.length) / .62).toFixed(1)}px` })

/** The cables, drawn as the report draws them; their state is as live as the rows above. */
function Fabric({ doc }) {
  const { drawing } = doc
  if (!drawing) return null
  const cables = halves(doc)
  const cut = cables.filter(one => one.cut).map(one => one.name)
  const [wide, high] = [drawing.box_width, drawing.box_height]
  const names = short(drawing.boxes.map(box => box.host), wide)
  return html`<div class="fabric"><svg viewBox=${`0 0 ${drawing.width} ${drawing.height}`} role="img" aria-label=${`${drawing.told}: ${cut.length ? `no carrier on ${cut.join(', ')}` : 'each known cable has its carrier'}`}>
    ${cables.map(({ name, line, label, cut: broken, words, text }) => html`<g key=${name}><line class=${broken ? 'cut' : words === null ? 'dim' : 'cable'} x1=${line[0]} y1=${line[1]} x2=${line[2]} y2=${line[3]}/><text class=${broken ? 'l bad' : 'l'} x=${label[0]} y=${label[1]} text-anchor=${label[2]}>${broken && text ? html`✕<tspan class="far"> no carrier</tspan>` : text}</text></g>`)}
    ${drawing.middle && html`<rect class="box" x=${drawing.middle[0] - 270} y=${drawing.middle[1] - 26} width="540" height="52" rx="9"/><text class="m mid" x=${drawing.middle[0]} y=${drawing.middle[1]} text-anchor="middle">${drawing.middle_name}</text>`}
    ${drawing.boxes.map(box => { const silent = !doc.hosts.find(one => one.name === box.host)?.answers; const said = silent ? 'no answer' : box.words.length * 14 < wide ? box.words : box.words.split(', ').pop(); return html`<g key=${box.host}><rect class=${silent ? 'boxbad' : 'box'} x=${box.x - wide / 2} y=${box.y - high / 2} width=${wide} height=${high} rx="9"/><title>${box.host}</title><text class="m" style=${fitted(names[box.host], wide)} x=${box.x} y=${box.y} text-anchor="middle">${names[box.host]}</text><text class="s" style=${fitted(said, wide)} x=${box.x} y=${box.y + 24} text-anchor="middle">${said}</text></g>` })}</svg></div>`
}

const wired = ({ topology }) => topology === 'lan' ? 'LAN' : topology

const PARTS = { u: 'in use', w: 'weights', k: 'KV cache', b: 'buffers and graphs', o: 'the rest', p: 'still to come' }

function Hosts({ doc }) {
  const answer = doc.hosts.filter(host => host.answers).length
  const closed = doc.hosts.filter(host => host.answers && host.firewall).length
  const shown = new Set(doc.hosts.flatMap(host => host.memory ? parts(host, doc.groups).filter(([, bytes]) => bytes > 0).map(([kind]) => kind) : []))
  return html`<section id="hosts" aria-labelledby="h2h"><header><h2 id="h2h">Hosts</h2><span class="small soft">${answer} of ${doc.hosts.length} answer${closed ? `, firewall closed on ${closed}` : ''}</span></header>
    <table class="rows"><caption class="vh">Memory, GPU, links and disk of each host</caption><thead><tr><th scope="col">Host</th><th scope="col">Memory, shared with the GPU</th><th scope="col">GPU</th><th scope="col">${doc.hosts.length > 1 ? `Fabric, ${wired(doc)}` : 'Links'}</th><th scope="col">Disk for models</th></tr></thead><tbody>${doc.hosts.map(host => html`<${HostRow} key=${host.name} host=${host} groups=${doc.groups}/>`)}</tbody></table>
    ${shown.size > 1 && doc.hosts.some(host => host.planned) && html`<p class="legend">${Object.entries(PARTS).filter(([kind]) => shown.has(kind)).map(([kind, name]) => html`<span key=${kind}><i class=${kind}></i>${name}</span>`)}<span>The sum is measured, its parts are planned.</span></p>`}
    <${Fabric} doc=${doc}/><${Alike} doc=${doc}/></section>`
}

/** What hosts differ on, and what the controller's playbooks found last, in their words. */
function Alike({ doc }) {
  const { versions, checks } = doc
  const why = checks.findings.length || checks.drift.length
  return html`<div class="alike"><h3>Versions and checks</h3><ul class="worries">
    ${versions.differ.map(text => html`<li key=${text}><${Shape} name="warn" toned/><span>${text}. <span class="soft">Fix: ${versions.fix}.</span></span></li>`)}
    ${versions.same.length > 0 && html`<li><${Shape} name="good" toned/><span>${versions.differ.length > 0 ? 'Otherwise the same' : doc.hosts.length > 1 ? 'The hosts that answer run the same' : 'This host runs'}: <span class="soft">${versions.same.join(', ')}.</span></span></li>`}
    ${checks.lines.map(({ text, fine }) => html`<li key=${text}><${Shape} name=${fine ? 'good' : 'warn'} toned/><span>${tied(text)}</span></li>`)}
    ${checks.lines.length === 0 && html`<li class="soft"><${Shape} name="dot" toned/><span>Neither doctor.yml nor drift.yml has looked since the page is here.</span></li>`}</ul>
    ${why > 0 && html`<details open=${checks.findings.some(one => one.severity === 'error')}><summary>What they found, and how to fix it</summary><ul class="found">
      ${checks.findings.map((one, index) => html`<li key=${index}><b><${Shape} name=${one.severity === 'error' ? 'bad' : 'warn'} toned/> ${one.title}</b>${one.hosts.length > 0 && html` <span class="soft">${one.hosts.join(', ')}</span>`}${one.cause && html`<p class="small soft">${one.cause}</p>`}<p>Fix: ${one.fix}</p>${one.evidence.map(line => html`<p class="mono soft" key=${line}>${line}</p>`)}</li>`)}
      ${checks.drift.map((line, index) => html`<li key=${`d${index}`} class="mono">${line}</li>`)}</ul></details>`}</div>`
}

/** Of the newest of `points` steps: a group that came later has fewer values, and its line ends at the right all the same. */
function path(values, points, width, height, most) {
  let pen = 'M'
  const before = points - values.length
  return values.map((value, index) => {
    if (value === null) { pen = 'M'; return '' }
    const point = `${pen}${((before + index) / Math.max(1, points - 1) * width).toFixed(1)} ${(height - value / most * height).toFixed(1)}`
    pen = 'L'
    return point
  }).join('')
}

/** `whole`: how the newest values of several groups are one figure. */
function Chart({ title, lines, unit, step, whole }) {
  const known = lines.flatMap(([, values]) => values).filter(value => value !== null)
  const most = Math.max(1e-9, ...known) * 1.15
  const points = Math.max(0, ...lines.map(([, values]) => values.length))
  const last = lines.map(([, values]) => values[values.length - 1]).filter(value => value !== null && value !== undefined)
  const now = last.length ? whole(last) : null
  const told = now === null ? '—' : `${figure(now)}${unit}`
  return html`<figure><h3>${title}<span>${told}</span></h3>
    <svg viewBox="0 0 100 50" preserveAspectRatio="none" role="img" aria-label=${`${title}, now ${told}, at most ${known.length ? `${figure(Math.max(...known))}${unit}` : '—'} in this hour`}><path class="grid" d="M0 0H100M0 25H100"/>${lines.map(([name, values], index) => html`<path key=${name} class=${`line ${HUES[index % 4]}`} d=${path(values, points, 100, 50, most)}/>`)}</svg>
    <div class="axis"><span>${duration(points * step)} ago</span><span>now</span></div></figure>`
}

/** Of the lines of several groups, in the order of their names. */
const HUES = ['a', 'b', 'c', 'r']
const sum = values => values.reduce((before, value) => before + value, 0)

function Traffic({ doc, right, own, ask }) {
  const { step, series } = doc.history
  // a group that is gone stays as long as the hour knows it; each has its place, and so its colour, in all charts
  const groups = Object.keys(series).filter(key => key.startsWith('running/')).map(key => key.slice(8))
    .filter(name => doc.groups.some(one => one.name === name) || series[`running/${name}`].some(value => value !== null))
  const of = name => groups.map(group => [group, series[`${name}/${group}`] || []])
  return html`<section id="traffic" aria-labelledby="h2t"><header><h2 id="h2t">Traffic</h2><span class="small soft">the last hour</span></header>
    <div class="charts"><${Chart} title="Tokens a second" lines=${of('tokens_per_second')} unit="" step=${step} whole=${sum}/><${Chart} title="Requests, running" lines=${of('running')} unit="" step=${step} whole=${sum}/><${Chart} title=${groups.length > 1 ? 'First token, slowest' : 'First token'} lines=${of('first_token')} unit=" s" step=${step} whole=${values => Math.max(...values)}/></div>
    ${groups.length > 1 && html`<p class="legend">${groups.map((name, index) => html`<span key=${name}><i class=${`hue-${HUES[index % 4]}`}></i>${name}</span>`)}</p>`}
    <table class="keys"><caption class="vh">Requests and tokens by key</caption><thead><tr><th scope="col">Key</th><th scope="col" class="num">Requests</th><th scope="col" class="num few">Refused</th><th scope="col" class="num">Tokens</th><th scope="col" class="opt">Limit</th>${right === 'operate' && html`<th scope="col"><span class="vh">Block</span></th>`}</tr></thead><tbody>
    ${doc.keys.map(key => html`<tr key=${key.name}><th scope="row">${key.name || (right === 'operate' ? '—' : 'all keys')}${key.blocked && html` <span class="tone-bad">blocked</span>`}</th><td class="num">${figure(key.requests)}</td><td class="num few">${figure(key.refused)}</td><td class="num">${figure(key.tokens)}</td><td class="opt small soft">${Object.entries(key.limits).map(([period, both]) => `${figure(both.used ?? 0)} of ${figure(both.limit)} a ${period}`).join(', ') || '—'}</td>${right === 'operate' && html`<td class="num">${key.known && key.name !== 'default' && key.name !== own && html`<button type="button" class="quiet" disabled=${!ask} onClick=${() => ask({ verb: key.blocked ? 'unblock' : 'block', key })}>${key.blocked ? 'Unblock' : 'Block'}<span class="vh"> ${key.name}</span></button>`}</td>`}</tr>`)}
    ${doc.keys.length === 0 && html`<tr><td colspan="6" class="soft">Nobody has asked yet.</td></tr>`}</tbody></table></section>`
}

const FILTERS = { all: () => true, people: one => one.kind === 'person', trouble: one => ['warn', 'bad'].includes(one.kind) }

function Events({ doc, group, token }) {
  const [filter, setFilter] = useState('all')
  const [open, setOpen] = useState(false)
  const [log, setLog] = useState({ lines: [], problem: '' })
  const place = useRef(null)
  const filled = useRef(false)
  useEffect(() => {
    filled.current = false
    if (!open || !group.here) return undefined
    let over = false
    let timer = 0
    const ask = async () => {
      try {
        const answer = await fetch(`log?group=${encodeURIComponent(group.id)}`, { headers: { Authorization: `Bearer ${token}` }, cache: 'no-store', signal: AbortSignal.timeout(8000) })
        const problem = answer.ok ? '' : await refusal(answer) || `The head answers ${answer.status}.`
        const lines = answer.ok ? (await answer.json()).lines : []
        if (!over) setLog({ lines, problem })
      } catch { if (!over) setLog(old => ({ ...old, problem: 'The head does not answer.' })) }
      if (!over) timer = setTimeout(ask, document.hidden ? 30000 : 5000)
    }
    ask()
    return () => { over = true; clearTimeout(timer) }
  }, [open, group.id, token])
  useEffect(() => {
    const own = place.current
    if (!own || !log.lines.length) return
    // the newest line is at the end; who has scrolled up reads, and is left alone
    if (!filled.current || own.scrollHeight - own.scrollTop - own.clientHeight < 80) own.scrollTop = own.scrollHeight
    filled.current = true
  }, [log.lines])
  const shown = doc.events.filter(FILTERS[filter])
  const today = new Date().toDateString()
  const at = seconds => new Date(seconds * 1000).toDateString() === today ? clock(seconds).slice(0, 5) : new Date(seconds * 1000).toDateString().slice(4, 10)
  return html`<section id="events" aria-labelledby="h2e"><header><h2 id="h2e">Events</h2><div class="chips" role="group" aria-label="Show">${Object.keys(FILTERS).map(name => html`<button type="button" aria-pressed=${String(filter === name)} onClick=${() => setFilter(name)}>${name}</button>`)}</div></header>
    <ol class="log">${shown.slice(0, 12).map((one, index) => html`<li key=${`${one.at}${index}`}><time class="mono soft">${at(one.at)}</time><${Shape} name=${one.kind} toned/><span><span class="by">${one.who}${one.key ? `, key ${one.key}` : ''}</span> ${tied(one.text)}</span></li>`)}</ol>
    ${shown.length === 0 && html`<p class="soft small">Nothing of that kind.</p>`}
    ${group.here && html`<details class="engine" onToggle=${event => setOpen(event.target.open)}><summary>Engine log, newest 200 lines</summary><pre tabindex="0" aria-label="Engine log" ref=${place}>${log.problem || log.lines.map(line => html`<div>${clock(line.at)} ${line.text}</div>`)}</pre></details>`}</section>`
}

/** What the head alone cannot do, with the command to copy. */
function Elsewhere({ doc }) {
  return html`<details class="elsewhere"><summary>Another model, and what this page does not look at</summary>
    <p class="small">${doc.store.length ? `The store of this host has ${doc.store.join(', ')}. ` : ''}Another model is planned for all hosts at once, so it is the controller's to switch:</p>
    <${Command} text="ansible-playbook playbooks/switch_model.yml -i INVENTORY -K -e recipe=NAME"/>
    <p class="small">This page looks at carriers, room, heat, the firewall, and what watchdog and engine say. Speeds of cables, MTU, logs of other units, and whether hosts are as the inventory wants them, is what these look at; the page keeps their newest result:</p>
    <${Command} text="ansible-playbook playbooks/doctor.yml -i INVENTORY -K"/><${Command} text="ansible-playbook playbooks/drift.yml -i INVENTORY -K --check"/></details>`
}

function Ask({ wish, doc, close, token, say }) {
  const verb = VERBS[wish.verb]
  const name = wish.key ? wish.key.name : named(wish.group, doc.groups)
  const whole = verb.whole ? `${verb.name}${doc.groups.length > 1 ? `: ${name}` : ''}` : `${verb.name} ${name}`
  const typed = wish.key ? '' : doc.groups.length > 1 ? wish.group.name : wish.group.model
  const [reason, setReason] = useState('')
  const [repeat, setRepeat] = useState('')
  const [key, setKey] = useState('')
  const [problem, setProblem] = useState('')
  const [busy, setBusy] = useState(false)
  const [id] = useState(() => Array.from(crypto.getRandomValues(new Uint8Array(16)), byte => byte.toString(16).padStart(2, '0')).join(''))
  const place = useRef(null)
  useEffect(() => { place.current.showModal() }, [])
  const ready = !busy && (!verb.why || reason.trim()) && (!verb.typed || repeat.trim() === typed)
  const go = async event => {
    event.preventDefault()
    if (!ready) return
    setBusy(true)
    try {
      const answer = await fetch('do', { method: 'POST', headers: { Authorization: `Bearer ${key.trim() || token}`, 'Content-Type': 'application/json' },
        body: JSON.stringify({ do: wish.verb, reason: reason.trim(), id, ...(wish.key ? { key: wish.key.name } : { group: wish.group.id, since: wish.group.since }) }) })
      if (answer.ok) { say(`${verb.name}: it has begun`); close(); return }
      setProblem(await refusal(answer) || `The head answers ${answer.status}.`)
    } catch { setProblem('The head does not answer; look whether it has begun before you try again.') }
    setBusy(false)
  }
  return html`<dialog aria-labelledby="d" ref=${place} onClose=${close}><form onSubmit=${go}><h2 id="d">${whole}</h2>
    <ul class="what">${wish.key ? html`<li>${count(wish.key.requests, 'request')}, ${count(wish.key.tokens, 'token')} since the exporter began to count.</li>` : wish.group.running ? html`<li>${count(wish.group.running, 'request')} run now.</li>` : ''}${verb.what.map(line => html`<li key=${line}>${line}</li>`)}${verb.loads && html`<li>${costs(wish.group)}</li>`}</ul>
    ${verb.why && html`<div class="field"><label for="r">Why? <span class="soft">everybody sees it, in status.yml as well</span></label><input id="r" maxlength="200" value=${reason} onInput=${event => setReason(event.target.value)}/></div>`}
    ${verb.typed && html`<div class="field"><label for="y">Type <span class="mono">${typed}</span> to ${verb.name.toLowerCase()} it</label><input id="y" autocomplete="off" value=${repeat} onInput=${event => setRepeat(event.target.value)}/></div>`}
    ${wish.right !== 'operate' && html`<div class="field"><label for="k2">Operator key <span class="soft">used once, never stored</span></label><input id="k2" type="password" autocomplete="off" value=${key} onInput=${event => setKey(event.target.value)}/></div>`}
    ${problem && html`<p class="err" role="alert"><${Shape} name="bad"/><span>${problem}</span></p>`}
    <div class="acts"><button type="button" onClick=${() => place.current.close()}>Leave it</button><button class=${verb.danger ? 'danger' : 'main'} disabled=${!ready}>${whole}</button></div></form></dialog>`
}

const SECTIONS = ['now', 'hosts', 'traffic', 'chat', 'events']

function Page() {
  const [token, setToken] = useState(() => sessionStorage.getItem('key') || '')
  const [problem, setProblem] = useState('')
  const [wish, setWish] = useState(null)
  const [pinned, pin] = useState('')
  const [toast, say] = useState('')
  const leave = text => { sessionStorage.removeItem('key'); setToken(''); setProblem(text || '') }
  const enter = key => {
    // a browser sends no other one, and says so as if nobody answered
    if (!/^[!-~]+$/.test(key)) { setProblem('A key has letters, digits and signs without spaces, as on an English keyboard. Was it copied whole?'); return }
    sessionStorage.setItem('key', key); setProblem(''); setToken(key)
  }
  const news = useNews(token, leave)
  const now = useSeconds()
  useEffect(() => { if (!toast) return undefined; const timer = setTimeout(() => say(''), 5000); return () => clearTimeout(timer) }, [toast])
  const doc = news.document
  const age = news.at ? (now - news.at) / 1000 : 0
  const stale = doc !== null && age > OLD
  const group = doc && doc.groups.length ? doc.groups.find(one => one.name === pinned) || first(doc.groups) : null
  // the head's own clock counts, and goes on between two answers
  const head = doc ? doc.time + age : 0
  const title = !token ? 'Key' : stale ? 'No news' : group ? verdict(group, head).title : 'Cluster'
  useEffect(() => { document.title = `${title} · ${doc ? doc.host : 'sparkthor.cluster'}`; document.body.classList.toggle('stale', stale) }, [title, stale])
  const dark = () => {
    const root = document.documentElement
    const is = root.dataset.theme || (matchMedia('(prefers-color-scheme:dark)').matches ? 'dark' : 'light')
    root.dataset.theme = is === 'dark' ? 'light' : 'dark'
  }
  if (!token) return html`<${Gate} problem=${problem} enter=${enter}/>`
  // the same frame before the first answer and after it, so that nothing moves when it comes
  const bar = html`<header class="bar"><div><span class="who">${doc ? html`${doc.host} <span>${count(doc.hosts.length, 'host')}${doc.hosts.length > 1 ? `, ${wired(doc)}` : ''}</span>` : 'sparkthor.cluster'}</span>
    <nav aria-label="Sections"><ul>${SECTIONS.filter(name => name !== 'events' || !doc || group).map(name => html`<li key=${name}><a href=${`#${name}`}>${name[0].toUpperCase() + name.slice(1)}</a></li>`)}</ul></nav>
    <div class="right">${doc && html`<span class=${stale ? 'live old' : 'live'}><i></i><span>${duration(age)} ago</span></span><span class="key soft">${news.key}, may ${news.right}</span>`}
    <button type="button" class="quiet icon" onClick=${dark} aria-label="Light or dark">◐</button><button type="button" class="quiet" onClick=${() => leave('')}>Sign out</button></div></div></header>`
  const skip = html`<a class="skip" href="#now">Skip to the state</a>`
  if (!doc) return html`${skip}${bar}<main id="main"><section id="now"><div class="verdict"><div role="status"><div class="state tone-idle"><${Shape} name=${news.problem ? 'away' : 'idle'}/><h1>${news.problem ? 'No news' : 'One moment'}</h1></div><p class="say">${news.problem || 'The cluster is asked.'}</p></div>
    <div class="acts"><button type="button" onClick=${() => leave('')}>Another key</button></div></div></section></main>`
  const ask = one => setWish({ ...one, right: news.right })
  const models = doc.groups.filter(one => one.model).map(one => ({ name: one.name, model: one.model,
    sleeps: one.state === 'asleep', waits: answers(one) || one.state === 'asleep' ? '' : one.state === 'unknown' ? 'Nobody knows whether it answers.' : `${verdict(one, head).verdict}.` }))
  return html`${skip}${bar}
  <main id="main">
    ${stale && html`<section id="stale" class="fix tone-bad"><p role="alert"><b>No news from ${doc.host} for ${duration(age)}.</b> What you see is from ${clock(doc.time)}. ${unbroken(sentence(news.problem))} The page asks again by itself.</p></section>`}
    ${pinned && group && group.name !== pinned && html`<section class="fix tone-warn"><p role="status"><b>${pinned}</b> is not a serving group of this cluster any more. <button type="button" class="quiet" onClick=${() => pin('')}>Understood</button></p></section>`}
    ${group ? html`<${Now} doc=${doc} group=${group} now=${head} pin=${pin} ask=${ask} stale=${stale}/>` : html`<section id="now"><div class="state tone-idle"><${Shape} name="idle"/><h1>${WORDS.absent}</h1></div><p class="say">site.yml sets up what the inventory wants to be served.</p><${Command} text="ansible-playbook site.yml -i INVENTORY -K"/></section>`}
    <div class="cols"><div><${Hosts} doc=${doc}/><${Traffic} doc=${doc} right=${news.right} own=${news.key} ask=${stale ? null : ask}/></div>
    <div><${Chat} models=${models} token=${token}/>${group && html`<${Events} doc=${doc} group=${group} token=${token}/>`}</div></div>
    <${Elsewhere} doc=${doc}/>
    <footer><span>sparkthor.cluster ${doc.release}</span><span>state of ${clock(doc.time)}</span></footer></main>
  ${toast && html`<div class="toast" role="status">${toast}</div>`}
  ${wish && html`<${Ask} key=${wish.verb} wish=${wish} doc=${doc} token=${token} say=${say} close=${() => setWish(null)}/>`}`
}

const root = document.getElementById('page')
root.replaceChildren()
render(html`<${Page}/>`, root)
