// A chat with one serving group: the API itself, with the reader's own key. Nothing is kept beyond the tab.
import { html, useEffect, useRef, useState } from './vendor/preact.js'
import * as smd from './vendor/smd.js'
import { figure, refusal } from './state.js'

// a link that a model writes leads to a page or a place, and a picture is never fetched
const LINK = /^(https?:|mailto:|#)/i

/** Nodes within nodes; a browser that draws some thousands of them runs out of its stack. */
const DEEP = 40

/** Markdown becomes nodes, never HTML; of attributes only harmless links are kept. */
function renderer(root) {
  const made = smd.default_renderer(root)
  let beyond = 0
  return { ...made,
    add_token: (data, type) => {
      if (beyond || data.index >= DEEP) { beyond += 1; return }
      made.add_token(data, type)
      // what scrolls sideways is reached by keyboard as well
      if ([smd.CODE_BLOCK, smd.CODE_FENCE, smd.TABLE].includes(type)) (data.nodes[data.index].closest('pre') || data.nodes[data.index]).tabIndex = 0
    },
    end_token: data => { if (beyond) beyond -= 1; else made.end_token(data) },
    set_attr: (data, type, value) => {
      if (beyond || type === smd.SRC || (type === smd.HREF && !LINK.test(value.trim()))) return
      made.set_attr(data, type, value)
      if (type !== smd.HREF) return
      const link = data.nodes[data.index]
      link.setAttribute('rel', 'noreferrer noopener')
      // the conversation would end with this page
      if (!value.trim().startsWith('#')) link.setAttribute('target', '_blank')
    } }
}

/** Lines of a stream of server-sent events. */
async function * events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    const lines = (rest + value).split('\n')
    rest = lines.pop()
    for (const line of lines) if (line.startsWith('data:')) yield line.slice(5).trim()
  }
}

async function refused(answer) {
  const again = answer.headers.get('Retry-After')
  return `${answer.status}: ${await refusal(answer) || 'no reason given'}${again ? ` Try again in ${again} s.` : ''}`
}

/** `by`: the model, where it is not the one that is asked now. */
function Answer({ turn, by, opened }) {
  const place = useRef(null)
  const parser = useRef(null)
  const written = useRef(0)
  useEffect(() => {
    if (!parser.current) parser.current = smd.parser(renderer(place.current))
    const fresh = turn.text.slice(written.current)
    written.current = turn.text.length
    if (fresh) smd.parser_write(parser.current, fresh)
    if (turn.ended) smd.parser_end(parser.current)
  }, [turn.text, turn.ended])
  const seconds = turn.ended ? (turn.ended - turn.begun) / 1000 : null
  const rate = turn.first && turn.last > turn.first && turn.tokens > 1 ? (turn.tokens - 1) * 1000 / (turn.last - turn.first) : null
  return html`<div class="it">
    ${turn.thought && html`<details onToggle=${opened}><summary>${turn.text || turn.ended ? 'Thought' : 'Thinks'}</summary><p class="thought">${turn.thought}</p></details>`}
    <div class=${turn.ended ? '' : 'writes'} ref=${place}></div>
    ${turn.error && html`<p class="err" role="alert">${turn.error}</p>`}
    <p class="stat">${turn.first ? `${figure((turn.first - turn.begun) / 1000)} s to the first token` : ''}${rate ? ` · ${figure(rate)} tokens/s` : ''}${turn.tokens ? ` · ${turn.tokens} tokens` : ''}${seconds !== null && !turn.first && !turn.error ? 'no answer' : ''}${turn.stopped ? ' · stopped' : ''}${by ? ` · by ${by}` : ''}</p>
  </div>`
}

const quoted = text => `'${text.replaceAll("'", "'\\''")}'`

function snippets(base, model) {
  const body = JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello' }] })
  return {
    curl: `curl ${base}/v1/chat/completions -H "Authorization: Bearer $API_KEY" -H 'Content-Type: application/json' -d ${quoted(body)}`,
    'OpenAI SDK': `from openai import OpenAI\n\nclient = OpenAI(base_url="${base}/v1", api_key="API_KEY")\nanswer = client.chat.completions.create(model=${JSON.stringify(model)}, messages=[{"role": "user", "content": "Hello"}])`,
    'Anthropic SDK': `from anthropic import Anthropic\n\nclient = Anthropic(base_url="${base}", api_key="API_KEY")\nanswer = client.messages.create(model=${JSON.stringify(model)}, max_tokens=500, messages=[{"role": "user", "content": "Hello"}])`,
    'Claude Code': `ANTHROPIC_BASE_URL=${base} ANTHROPIC_AUTH_TOKEN=API_KEY ANTHROPIC_MODEL=${quoted(model)} claude`
  }
}

export function Copy({ text }) {
  const [said, say] = useState('Copy')
  const place = useRef(null)
  const copy = async () => {
    try { await navigator.clipboard.writeText(text); say('Copied') } catch {
      // over plain HTTP a browser has no clipboard for pages
      const range = document.createRange()
      range.selectNodeContents(place.current.previousElementSibling)
      const selection = getSelection(); selection.removeAllRanges(); selection.addRange(range)
      say('Selected')
    }
    setTimeout(() => say('Copy'), 2000)
  }
  return html`<button type="button" ref=${place} onClick=${copy}>${said}</button>`
}

/** A command whose options stay whole where a line ends. */
const unsplit = text => text.split(/((?<=\s)--?\w+(?=\s|$))/).map((part, index) => index % 2 ? html`<span class="one">${part}</span>` : part)

export const Command = ({ text }) => html`<div class="cmd"><code>${unsplit(text)}</code><${Copy} text=${text}/></div>`

export function Chat({ models, token }) {
  const [turns, setTurns] = useState([])
  const [draft, setDraft] = useState(() => sessionStorage.getItem('draft') || '')
  const [system, setSystem] = useState('')
  const [chosen, choose] = useState('')
  const [snippet, setSnippet] = useState('curl')
  const running = useRef(null)
  const log = useRef(null)
  /** Whether the reader is at the end, and what comes is followed. */
  const follows = useRef(true)
  const stood = useRef(0)
  const busy = turns.length > 0 && !turns[turns.length - 1].ended && turns[turns.length - 1].role === 'assistant'
  const model = models.find(one => one.name === chosen) || models[0]
  const waits = model && model.waits
  useEffect(() => { sessionStorage.setItem('draft', draft) }, [draft])
  useEffect(() => {
    // how far it is after an answer has grown says nothing: one piece may be a whole table
    scrolled()
    settle()
  }, [turns, waits, model?.sleeps])
  // a phone is turned
  useEffect(() => { addEventListener('resize', settle); return () => removeEventListener('resize', settle) }, [])

  const change = more => setTurns(all => [...all.slice(0, -1), { ...all[all.length - 1], ...more(all[all.length - 1]) }])

  async function send() {
    const text = draft.trim()
    if (!text || busy || !model || waits) return
    // a question without its answer goes with it: many models take turns alone
    const before = turns.filter((one, index) => !one.error && !turns[index + 1]?.error).map(({ role, text: content }) => ({ role, content }))
    const messages = [...(system.trim() ? [{ role: 'system', content: system.trim() }] : []), ...before, { role: 'user', content: text }]
    setDraft('')
    const begun = performance.now()
    setTurns(all => [...all, { role: 'user', text }, { role: 'assistant', model: model.model, text: '', thought: '', tokens: 0, begun }])
    // also for who has scrolled up
    follows.current = true
    const abort = running.current = new AbortController()
    let stopped = false
    abort.signal.addEventListener('abort', () => { stopped = true })
    let pending = { text: '', thought: '', tokens: 0, first: 0, last: 0 }
    let due = false
    const flush = () => {
      due = false
      const now = pending
      pending = { text: '', thought: '', tokens: 0, first: 0, last: 0 }
      change(turn => ({ text: turn.text + now.text, thought: turn.thought + now.thought, tokens: turn.tokens + now.tokens,
        first: turn.first || now.first, last: now.last || turn.last }))
    }
    let error = ''
    let whole = false
    try {
      const answer = await fetch('../v1/chat/completions', { method: 'POST', signal: abort.signal,
        headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
        body: JSON.stringify({ model: model.model, messages, stream: true, stream_options: { include_usage: true } }) })
      if (!answer.ok) {
        // it can be sent again as it is
        setDraft(now => now || text)
        throw new Error(await refused(answer))
      }
      for await (const data of events(answer.body)) {
        if (data === '[DONE]') { whole = true; break }
        const part = JSON.parse(data)
        if (part.error) throw new Error(String(part.error.message || 'the engine ended the answer'))
        const delta = part.choices?.[0]?.delta || {}
        const thought = delta.reasoning_content || delta.reasoning || ''
        if (delta.content || thought) {
          const now = performance.now()
          pending.first ||= now
          pending.last = now
          pending.tokens += 1
          pending.text += delta.content || ''
          pending.thought += thought
          if (!due) { due = true; requestAnimationFrame(flush) }
        }
        if (part.usage?.completion_tokens) { const tokens = part.usage.completion_tokens; flush(); change(() => ({ tokens })) }
      }
      if (!whole) error = 'The answer was cut off: the connection ended before it did.'
    } catch (problem) {
      if (!stopped) error = problem instanceof TypeError ? 'The head does not answer, or the connection was lost.' : problem.message
    }
    flush()
    change(() => ({ ended: performance.now(), error, stopped }))
  }

  const typed = event => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); send() }
  }
  const atEnd = () => log.current.scrollHeight - log.current.scrollTop - log.current.clientHeight < 40
  const scrolled = () => {
    // an answer that grows moves the end away, never the reader up
    if (atEnd()) follows.current = true
    else if (log.current.scrollTop < stood.current) follows.current = false
    stood.current = log.current.scrollTop
  }
  const settle = () => {
    if (follows.current) log.current.scrollTop = log.current.scrollHeight
    stood.current = log.current.scrollTop
  }
  const base = location.origin
  const texts = model ? snippets(base, model.model) : {}
  return html`<section id="chat" aria-labelledby="h2c"><header><h2 id="h2c">Chat</h2>
    ${models.length > 1 ? html`<span class="small"><label class="vh" for="model">Model</label><select id="model" value=${model.name} onChange=${event => choose(event.target.value)}>
      ${models.map(one => html`<option value=${one.name}>${one.model}</option>`)}</select></span>`
    : html`<span class="small soft">${model ? `with ${model.model}` : ''}</span>`}</header>
    <div class="talk" role="log" aria-label="Conversation" tabindex="0" ref=${log} onScroll=${scrolled}>
      ${!model && html`<p class="none">There is no model to talk to yet.</p>`}
      ${model && !waits && !model.sleeps && !turns.length && html`<p class="none">Nothing said yet. An answer comes here as it is written, with its speed below it.</p>`}
      ${turns.map((turn, index) => turn.role === 'user' ? html`<p class="me" key=${index}>${turn.text}</p>` : html`<${Answer} key=${index} turn=${turn} by=${model && turn.model !== model.model ? turn.model : ''} opened=${() => { follows.current = atEnd() }}/>`)}
      ${model && model.sleeps && html`<p class="none">It sleeps. A message wakes it, and can be sent again when it answers.</p>`}
      ${waits && html`<p class="none">${waits} What you write here is kept, and can be sent when it answers.</p>`}
    </div>
    <form class="ask" onSubmit=${event => { event.preventDefault(); send() }}>
      <div><label class="vh" for="q">Message</label><textarea id="q" rows="1" disabled=${!model} placeholder=${model ? 'Ask the model something' : 'No model yet'} value=${draft} onInput=${event => setDraft(event.target.value)} onKeyDown=${typed}></textarea></div>
      ${busy ? html`<button type="button" class="main" onClick=${() => running.current.abort()}>Stop</button>` : html`<button class="main" disabled=${!model || !!waits || !draft.trim()}>Send</button>`}
    </form>
    <details class="system small"><summary>System prompt</summary>
      <label class="vh" for="system">System prompt</label><textarea id="system" value=${system} onInput=${event => setSystem(event.target.value)}></textarea></details>
    <p class="small soft kept"><span>Nothing is stored; the conversation ends with this tab.</span>${turns.length ? html`<button type="button" class="quiet icon" onClick=${() => setTurns([])} disabled=${busy}>New conversation</button>` : ''}</p>
    ${model && html`<div class="end"><h3>From your programs</h3><${Command} text=${`${base}/v1`}/>
      <div><label class="vh" for="with">With</label><select id="with" value=${snippet} onChange=${event => setSnippet(event.target.value)}>${Object.keys(texts).map(name => html`<option value=${name} selected=${name === snippet}>${name}</option>`)}</select></div>
      <div class="cmd long"><code>${unsplit(texts[snippet])}</code><${Copy} text=${texts[snippet]}/></div></div>`}
  </section>`
}
