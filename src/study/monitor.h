#pragma once

// What a study tells its caller while it works, and what it asks.

#include <memory>
#include <string>

#include "study/experiment/run.h"

namespace tulle::study {

// The functions are called by several threads at the same time, except where they say otherwise.
// This class is silent and never ends the work.
class Monitor {
 public:
  // A run that is under way as long as this object lives. One thread uses it.
  class Run {
   public:
    virtual ~Run() = default;
    virtual void show(const experiment::Progress&) {}
  };

  virtual ~Monitor() = default;

  // Returns false if the work is to end with what it has.
  virtual bool goes_on() const { return true; }
  // Called before the first run begins. Nothing is refused any more, so that the rest may take
  // long.
  virtual void ready() {}
  // A run begins; an empty name is that of the only one.
  virtual std::unique_ptr<Run> begin(const std::string&) { return std::make_unique<Run>(); }
  // Says a line for people: what is done otherwise than they may expect.
  virtual void note(const std::string&) {}
  // Shows how far work of several points has come, in place of what was shown before; empty: it is
  // over. Called by the thread of the caller.
  virtual void show(const std::string&) {}
  // Sets the line that is said if this process is ended from outside. Called by the thread of the
  // caller.
  virtual void say_when_ended(const std::string&) {}
};

}  // namespace tulle::study
