// Ansible managed: sparkthor.cluster
// How many tokens an answer took, as vLLM says in it. The answer is passed on first, as it came; nothing is held back.
// And who used up what the key may take: sparkthor-tokens.service counts, and says so in a file.

import fs from 'fs';
import scan from 'scan.js';

const OVER = '/run/sparkthor-tokens/over.json';
// seconds for which that file counts; it is written every 5
const FRESH = 20;
const USAGE = {prompt_tokens: 1, input_tokens: 1, completion_tokens: 1, output_tokens: 1, total_tokens: 1};
// Where vLLM itself writes it. What it repeats of a request, such as a schema, stands elsewhere, or inside of a string.
const ANSWER = {usage: USAGE};
const EVENTS = {usage: USAGE, response: {usage: USAGE}, message: {usage: USAGE}};
// Of an answer that does not say its tokens: bytes of text that count as a token, tokens that a prompt counts as at most
// (images are long and few tokens), tokens of a second of an answer that had not begun when its client went away.
const BYTES = 4;
const MOST = 32768;
const A_SECOND = 20;

// of this request: what was read of its answer, and the parts or the text of it
let state = null;
let parts = 0;

// Events of a stream end with an empty line, which is nowhere else in it.
function events(data) {
    let count = 0;
    for (let at = data.indexOf('\n\n'); at >= 0; at = data.indexOf('\n\n', at + 2)) {
        count++;
    }
    return count;
}

// Whether whole events say anything of their tokens; where vLLM is told to, each says that it does not.
function tells(data) {
    let at = data.indexOf('"usage"');
    while (at >= 0 && data.indexOf(':null', at) === at + 7) {
        at = data.indexOf('"usage"', at + 7);
    }
    return at >= 0;
}

function used(r, data, flags) {
    r.sendBuffer(data, flags);
    if (!data.length) {
        return;
    }
    if (!r.variables.sparkthor_read) {
        const stream = (r.headersOut['Content-Type'] || '').startsWith('text/event-stream');
        r.variables.sparkthor_read = '1';
        state = scan.begin(stream ? EVENTS : ANSWER, stream);
        parts = 0;
    }
    parts += state.lines ? events(data) : data.length / BYTES;
    // most parts of a stream are whole events that say nothing of it
    if (state.lines && !state.depth && !state.string && data[data.length - 1] === 10 && !tells(data)) {
        return;
    }
    for (let at = 0; at < data.length;) {
        at = scan.read(state, data, at, data.length);
    }
}

// Tokens of prompt and completion, as far as the answer said them.
function said() {
    const found = state.found;
    const made = found.completion_tokens !== undefined ? found.completion_tokens : found.output_tokens;
    const asked = found.prompt_tokens !== undefined ? found.prompt_tokens : found.input_tokens;
    const all = found.total_tokens;
    return [asked !== undefined || all === undefined ? asked : Math.max(0, all - (made || 0)), made];
}

// What a request that ended took: "PROMPT COMPLETION", with " ~" where it is estimated; empty for one that took nothing.
function account(r) {
    const variables = r.variables;
    if (r.method !== 'POST' || (variables.status !== '200' && variables.status !== '499')) {
        return '';
    }
    const read = variables.sparkthor_read;
    const known = read ? said() : [];
    if (variables.request_completion && known[0] !== undefined) {
        return known[0] + ' ' + (known[1] || 0);
    }
    if (!variables.upstream_response_time) {
        return '';
    }
    // the client went away in the middle, or vLLM did not say it; the bytes of a recording say nothing of its tokens
    const form = (r.headersIn['Content-Type'] || '').toLowerCase().startsWith('multipart/form-data');
    const asked = form ? 0 : Math.min(MOST, Math.ceil(Number(variables.request_length) / BYTES));
    const seconds = Number(variables.upstream_response_time.split(/[ ,:]+/).pop()) || 0;
    const made = read ? Math.max(parts, known[1] || 0) : seconds * A_SECOND;
    return (known[0] === undefined ? asked : known[0]) + ' ' + Math.min(999999999, Math.ceil(made)) + ' ~';
}

// What sparkthor-tokens.service says. Without it, or without its word of late, nobody counts: null.
function counted() {
    try {
        const said = JSON.parse(fs.readFileSync(OVER, 'utf8'));
        return Math.abs(Date.now() / 1000 - said.at) < FRESH ? said : null;
    } catch (error) {
        return null;
    }
}

// What the key of a request has too much of; an end that passed counts no more.
function standing(r) {
    const said = counted();
    const own = said && said.over[r.variables.sparkthor_key];
    return own && own.until * 1000 > Date.now() ? own : undefined;
}

// Why a key with a limit may not go on: over, uncounted, stored; empty where it may. Only POST takes tokens, but for
// what was stored: its tokens were not known when it was asked for.
function over(r) {
    if (!r.variables.sparkthor_limited) {
        return '';
    }
    if (r.method !== 'POST') {
        return r.uri.startsWith('/v1/responses/') ? 'stored' : '';
    }
    const said = counted();
    if (!said || said.uncounted.indexOf(r.variables.sparkthor_key) >= 0) {
        return 'uncounted';
    }
    return standing(r) ? 'over' : '';
}

function overFor(r) {
    const own = standing(r);
    return own ? String(Math.max(1, Math.ceil(own.until - Date.now() / 1000))) : r.variables.sparkthor_next;
}

function overText(r) {
    const own = standing(r);
    const month = own && own.period === 'month';
    const kind = month ? 'insufficient_quota' : 'rate_limit_error';
    const ends = own ? new Date(own.until * 1000).toISOString() : '';
    const message = own
        ? 'This key took ' + own.used + ' tokens of ' + own.limit + ' in ' + (month ? 'this month' : 'a minute')
          + '; it may go on at ' + ends + '.'
        : 'Too many requests from this address or with this key; see Retry-After. '
          + 'A body without Content-Length counts as one of the largest.';
    if (/^\/v1\/messages/.test(r.uri)) {
        return JSON.stringify({type: 'error', error: {type: 'rate_limit_error', message: message}}) + '\n';
    }
    const code = month ? kind : 'rate_limit_exceeded';
    return JSON.stringify({error: {message: message, type: kind, param: null, code: code}}) + '\n';
}

export default {used, account, over, overFor, overText};
