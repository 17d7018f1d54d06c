#include "megalith/train/training_state.h"

#include <nlohmann/json.hpp>

#include "megalith/base/error.h"

namespace megalith {

std::string TrainingState::to_json() const {
  const nlohmann::json json = {{"updates", updates},
                               {"consumed_samples", consumed_samples},
                               {"scheduled_samples", scheduled_samples},
                               {"loss_scale", loss_scaler.scale},
                               {"loss_scale_clean_steps", loss_scaler.clean_steps},
                               {"loss_scale_floor_overflows", loss_scaler.floor_overflows},
                               {"step", step}};
  return json.dump();
}

TrainingState TrainingState::from_json(const std::string& text, const std::string& where) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  TrainingState state;
  try {
    state.step = json.at("step").get<int64_t>();
    state.updates = json.at("updates").get<int64_t>();
    state.consumed_samples = json.at("consumed_samples").get<int64_t>();
    state.scheduled_samples = json.at("scheduled_samples").get<int64_t>();
    state.loss_scaler.scale = json.at("loss_scale").get<double>();
    state.loss_scaler.clean_steps = json.at("loss_scale_clean_steps").get<int64_t>();
    state.loss_scaler.floor_overflows = json.at("loss_scale_floor_overflows").get<int64_t>();
  } catch (const nlohmann::json::exception& error) {
    fail_input("{}: the state of the run cannot be read: {}", where, error.what());
  }
  const bool sane = state.step >= state.updates && state.updates >= 0 &&
                    state.consumed_samples >= state.scheduled_samples && state.scheduled_samples >= 0 &&
                    state.loss_scaler.scale > 0;
  check_input(sane, "{}: the state of the run contradicts itself", where);
  return state;
}

}  // namespace megalith
