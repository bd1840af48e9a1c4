// Asks for a token, where the server wants one. The server keeps it in a cookie that scripts cannot read.

import { html, useState } from "./vendor/htm-preact.js";
import { post } from "./api.js";
import { Fault } from "./parts/notice.js";

export function SignIn({ done }) {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState(null);
  const submit = (event) => {
    event.preventDefault();
    setProblem(null);
    post("session", { token }).then(done, setProblem);
  };
  return html`<main class="signin"><form class="card" onSubmit=${submit}>
    <h1>Thalweg</h1>
    <p class="quiet">This router wants a token. Its configuration names the file in <code>[[web.token]]</code>.</p>
    <label class="field grow"><span>Token</span>
      <input type="password" autocomplete="current-password" required value=${token}
        onInput=${(event) => setToken(event.target.value)} /></label>
    ${problem && html`<${Fault} problem=${problem} />`}
    <div class="actions"><button class="button main">Sign in</button></div>
  </form></main>`;
}
