#include "tools/explain_states.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/explain_state.h"
#include "tools/answer.h"
#include "tools/command.h"
#include "tools/objective.h"
#include "tools/words_terminal.h"

namespace fragscope::tools {

int explain_states(const analysis::ImportedStates& states, const StateOptions& options) {
    const std::size_t kept = states.states.size();
    const std::uint64_t failures = analysis::failures_in(states);
    std::size_t from = options.all ? 0 : kept - 1;
    std::size_t to = kept;
    if (options.number) {
        if (*options.number <= states.before_them || *options.number > failures) {
            complain(fmt::format("--failure {}: {} tells of {} failed request{}, and those from {} on are kept",
                                 *options.number, states.file, failures, failures == 1 ? "" : "s",
                                 states.before_them + 1));
            return kWrongUsage;
        }
        from = static_cast<std::size_t>(*options.number - states.before_them - 1);
        to = from + 1;
    }
    const Style style = style_of_stdout();
    int status = kDone;
    for (std::size_t i = from; i < to; ++i) {
        report::Explanation explanation = analysis::explain_state(states, i, options.contract);
        order_by(options.objective, explanation);
        status = std::max(status, status_of(explanation.health()));
        const std::string rule =
            i == from ? "" : "\n" + std::string(static_cast<std::size_t>(style.width), '-') + "\n\n";
        if (!(options.json ? write_json(explanation)
                           : write_answer(rule + render_explanation(explanation, style, options.pages))))
            return kCannot;
    }
    const std::uint64_t others = failures - (to - from);
    if (!options.json && others != 0) {
        Page page(style);
        page.paragraph(fmt::format("{} tells of {} other failed {}: `fragscope report` lists {}, `--failure N` explains "
                                   "one, `--all` all.",
                                   states.file, others, others == 1 ? "request" : "requests",
                                   others == 1 ? "it" : "them"));
        if (!write_answer("\n" + page.text())) return kCannot;
    }
    return status;
}

}  // namespace fragscope::tools
