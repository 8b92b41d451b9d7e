// Ansible managed: sparkthor.cluster
// How many tokens an answer took, as vLLM says in it. The answer is passed on first, as it came; nothing is held back.

// more than an account of tokens takes
const LONGEST = 400;

function account(text) {
    const prompt = /"usage":\{"(?:prompt|input)_tokens":(\d+)/.exec(text);
    if (!prompt) {
        return '';
    }
    const rest = text.slice(prompt.index, prompt.index + LONGEST);
    const made = /"(?:completion|output)_tokens":(\d+)/.exec(rest);
    return prompt[1] + ' ' + (made ? made[1] : '0');
}

function used(r, data, flags) {
    r.sendBuffer(data, flags);
    if (!data.length) {
        return;
    }
    // the last account counts: a stream may give one with each part
    let found = '';
    const at = data.lastIndexOf('"usage":{');
    if (at >= 0) {
        found = account(data.toString('utf8', at, Math.min(at + LONGEST, data.length)));
    }
    const before = r.variables.sparkthor_rest || '';
    if (!found && before) {
        // it began in a part before this one
        found = account(before + data.toString('utf8', 0, Math.min(LONGEST, data.length)));
    }
    if (found) {
        r.variables.sparkthor_tokens = found;
    }
    // events of a stream end with a line, and most parts are whole events
    const whole = data[data.length - 1] === 10;
    if (!whole || before) {
        const end = data.toString('utf8', Math.max(0, data.length - LONGEST));
        r.variables.sparkthor_rest = whole ? '' : (before + end).slice(-LONGEST);
    }
}

export default {used};
