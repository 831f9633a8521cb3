# SPDX-License-Identifier: Apache-2.0
# spank_mm_train.so is loaded into sbatch, srun and slurmstepd, whatever libraries a LD_LIBRARY_PATH of the user holds: it
# carries what it needs (C++ runtime, fmt, its own objects of common/) and depends on libc alone.
spank_logic := $(addprefix spank_plugin/,checks.cc command_line.cc environment.cc node_order.cc node_tree.cc option_table.cc rank_order.cc record.cc \
  task_binding.cc)
spank_common := $(addprefix common/,agent_client.cc error.cc files.cc hostlist.cc job.cc key_values.cc layout.cc process.cc site.cc smaller_layouts.cc toml_schema.cc) \
  $(wildcard common/plan/*.cc)
spank_objects := $(patsubst %.cc,$(BUILD)/obj/plugin/%.o,$(sort $(wildcard spank_plugin/*.cc) $(filter-out %/draw.cc,$(wildcard spank_plugin/placement/*.cc)) $(spank_common)))

# Hardware and rank maps; hwloc is loaded when it is first used (hwloc_api.h).
$(call library,placement,$(wildcard spank_plugin/placement/*.cc),fmt dl hwloc)
$(call program,mm-place,$(wildcard spank_plugin/placement/tool/*.cc),placement spank_logic plan common,cli11 json)

# The pure part, for the unit tests.
$(call library,spank_logic,$(spank_logic),fmt)

$(BUILD)/obj/plugin/%.o: CPPFLAGS += -DFMT_HEADER_ONLY
$(BUILD)/obj/plugin/%.o: PACKAGES := toml json hwloc
$(BUILD)/obj/plugin/%.o: %.cc | $(BUILD)/packages.mk
	@mkdir -p $(@D)
	@echo "  CXX   $< (plugin)"
	@$(CXX) $(CPPFLAGS) $(CXXFLAGS) $(call flags_of,CFLAGS,$(PACKAGES)) -MMD -MP -c $< -o $@

# Sanitizers bring a runtime that Slurm's own commands do not have loaded first: the plugin is then for the linker to check only.
$(BUILD)/spank_mm_train.so: $(spank_objects) spank_plugin/exports.map
	@echo "  LINK  $@"
	@$(CXX) -shared $(LDFLAGS) $(if $(SAN),,-static-libstdc++ -static-libgcc) \
	  -Wl,--version-script=spank_plugin/exports.map -Wl,-z,relro,-z,now $(filter %.o,$^) -o $@
	@# Slurm's own functions stay open; one of ours would keep Slurm from loading it.
	@! nm -DC --undefined-only $@ | grep ' mm::' || { rm -f $@; exit 1; }

-include $(spank_objects:.o=.d)
