#include "megalith/cli/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "megalith/base/utf8.h"

namespace megalith {

namespace {

constexpr double kWidth = 560, kHeight = 260;
constexpr double kLeft = 62, kRight = 14, kTop = 30, kBottom = 38;

// A step of 1, 2 or 5 times a power of ten that cuts `range` into about `count` parts.
double nice_step(double range, int count) {
  const double raw = range / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

std::string tick_text(double value) {
  const double size = std::abs(value);
  if (size >= 1e6) return fmt::format("{:.3g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.3g}k", value / 1e3);
  if (size != 0 && size < 1e-3) return fmt::format("{:.1e}", value);
  return fmt::format("{:.3g}", value);
}

struct Axis {
  double low = 0, high = 1;
  bool log = false;

  double map(double value) const {
    const double v = log ? std::log10(value) : value;
    return (v - low) / (high - low);
  }
};

// At most this many points are drawn; others are thinned evenly, the last one stays.
constexpr size_t kMaxPoints = 1200;

}  // namespace

std::string escape_html(const std::string& text) {
  std::string out;
  for (const char c : replace_invalid_utf8(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string line_chart(const std::vector<ChartSeries>& series, const ChartOptions& options) {
  Axis x, y;
  y.log = options.log_y;
  double x_low = INFINITY, x_high = -INFINITY, y_low = INFINITY, y_high = -INFINITY;
  const auto usable = [&](const std::pair<double, double>& point) {
    return std::isfinite(point.first) && std::isfinite(point.second) && (!y.log || point.second > 0);
  };
  for (const ChartSeries& s : series) {
    for (const auto& point : s.points) {
      if (!usable(point)) continue;
      const double value = y.log ? std::log10(point.second) : point.second;
      x_low = std::min(x_low, point.first);
      x_high = std::max(x_high, point.first);
      y_low = std::min(y_low, value);
      y_high = std::max(y_high, value);
    }
  }
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">", kWidth, kHeight,
                                escape_html(options.title));
  svg += fmt::format("<text class=\"title\" x=\"{}\" y=\"16\">{}</text>", kLeft, escape_html(options.title));
  if (x_low > x_high) {
    return svg + fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">no data</text></svg>",
                             kWidth / 2, kHeight / 2);
  }
  if (options.from_zero && !y.log) y_low = std::min(0.0, y_low);
  if (x_high == x_low) x_high = x_low + 1;
  if (y_high - y_low < 1e-12 * std::max(1.0, std::abs(y_high))) {
    y_high += 0.5 * std::max(std::abs(y_high), 1e-9);
    y_low -= 0.5 * std::max(std::abs(y_low), 1e-9);
  }
  const double margin = 0.04 * (y_high - y_low);
  x.low = x_low;
  x.high = x_high;
  y.low = options.from_zero && y_low == 0 ? 0 : y_low - margin;
  y.high = y_high + margin;
  const double plot_width = kWidth - kLeft - kRight, plot_height = kHeight - kTop - kBottom;
  const auto px = [&](double v) { return kLeft + x.map(v) * plot_width; };
  const auto py_raw = [&](double v) { return kTop + (1 - (v - y.low) / (y.high - y.low)) * plot_height; };

  const double y_step = nice_step(y.high - y.low, 5);
  for (double tick = std::ceil(y.low / y_step) * y_step; tick <= y.high + 1e-9 * y_step; tick += y_step) {
    const double at = py_raw(tick);
    svg += fmt::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", kLeft,
                       kWidth - kRight, at, at);
    svg += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", kLeft - 6,
                       at + 4, tick_text(y.log ? std::pow(10.0, tick) : tick));
  }
  const double x_step = nice_step(x.high - x.low, 6);
  for (double tick = std::ceil(x.low / x_step) * x_step; tick <= x.high + 1e-9 * x_step; tick += x_step) {
    svg += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                       px(tick), kHeight - kBottom + 16, tick_text(tick));
  }
  svg += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", kWidth - kRight,
                     kHeight - 6, escape_html(options.x_label));
  double legend = kWidth - kRight;
  for (size_t i = series.size(); i-- > 0;) {
    const ChartSeries& s = series[i];
    std::vector<std::pair<double, double>> points;
    for (const auto& point : s.points) {
      if (usable(point)) points.push_back(point);
    }
    std::string path;
    const size_t stride = std::max<size_t>(1, points.size() / kMaxPoints);
    for (size_t p = 0; p < points.size(); ++p) {
      if (p % stride != 0 && p + 1 != points.size()) continue;
      const double value = y.log ? std::log10(points[p].second) : points[p].second;
      path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "M" : "L", px(points[p].first), py_raw(value));
      if (s.marked) {
        svg += fmt::format("<circle class=\"f{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>", s.color,
                           px(points[p].first), py_raw(value));
      }
    }
    svg += fmt::format("<path class=\"line c{}\" d=\"{}\"/>", s.color, path);
    if (series.size() > 1) {
      svg += fmt::format("<text class=\"tick f{}\" x=\"{:.1f}\" y=\"16\" text-anchor=\"end\">{}</text>",
                         s.color, legend, escape_html(s.name));
      legend -= 8.0 * static_cast<double>(s.name.size()) + 14;
    }
  }
  return svg + "</svg>";
}

std::string bar_chart(const std::vector<std::pair<std::string, double>>& bars, const std::string& unit) {
  double total = 0, largest = 0;
  for (const auto& [name, value] : bars) {
    total += value;
    largest = std::max(largest, value);
  }
  if (total <= 0) return "<p>no data</p>";
  constexpr double kRow = 24, kName = 150, kText = 150;
  const double height = kRow * static_cast<double>(bars.size()) + 4;
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\">", kWidth, height);
  double at = 2;
  for (const auto& [name, value] : bars) {
    const double length = value / largest * (kWidth - kName - kText);
    svg += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", kName - 8,
                       at + 16, escape_html(name));
    svg += fmt::format("<rect class=\"f0\" x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" rx=\"2\"/>",
                       kName, at + 3, std::max(length, 0.5), kRow - 8);
    svg += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{}\">{:.1f} {} ({:.1f}%)</text>",
                       kName + length + 8, at + 16, value, unit, 100 * value / total);
    at += kRow;
  }
  return svg + "</svg>";
}

}  // namespace megalith
